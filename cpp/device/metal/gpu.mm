#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "base/errors.h"
#include "device/gpu/tensor_check.h"
#include "device/metal/buffer.h"
#include "device/metal/event.h"
#include "device/metal/library.h"
#include "device/metal/metal.h"
#include "device/metal/objects.h"
#include "device/metal/queue.h"
#include "device/metal/residency.h"

namespace mference::metal {

namespace {

constexpr NSInteger kOldestSystem = 14;  // Metal 3.1
constexpr NSInteger kTensorSystem = 26;  // Metal 4
// MTLGPUFamilyMetal4, which older SDKs do not declare.
constexpr auto kMetal4 = static_cast<MTLGPUFamily>(5002);

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw DeviceError("cannot read the Metal kernels at " + path.string());
  return text;
}

// Appends a source with its own headers in the place of their #include, each once: the system
// compiles a text, and has no directory to look in.
void append_source(const std::filesystem::path& path, std::set<std::string>& seen,
                   std::string& out) {
  if (!seen.insert(path.filename().string()).second) return;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kInclude = "#include \"";
    if (line.starts_with(kInclude)) {
      const size_t end = line.find('"', kInclude.size());
      append_source(path.parent_path() / line.substr(kInclude.size(), end - kInclude.size()), seen,
                    out);
    } else if (line != "#pragma once") {
      out += line + "\n";
    }
  }
}

std::string join_sources(const std::string& directory) {
  std::set<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".metal") files.insert(entry.path());
  }
  if (files.empty()) throw DeviceError("there are no Metal kernels in " + directory);
  std::set<std::string> seen;
  std::string source;
  for (const auto& file : files) append_source(file, seen, source);
  return source;
}

NSInteger system_version() {
  return [[NSProcessInfo processInfo] operatingSystemVersion].majorVersion;
}

Ref<id<MTLDevice>> open_device() {
  const auto device = Ref<id<MTLDevice>>::adopt(MTLCreateSystemDefaultDevice());
  if (!device) throw DeviceError("this machine has no GPU that Metal can use; choose device cpu");
  if (system_version() < kOldestSystem) {
    throw DeviceError("the Metal device needs macOS " + std::to_string(kOldestSystem) +
                      " or newer, and this is macOS " + std::to_string(system_version()) +
                      "; choose device cpu");
  }
  if (![device.get() supportsFamily:MTLGPUFamilyApple7]) {
    throw DeviceError("the Metal device needs Apple Silicon (M1 or newer), and this GPU is " +
                      to_string([device.get() name]) + "; choose device cpu");
  }
  return device;
}

bool has_tensors(id<MTLDevice> device) {
  return system_version() >= kTensorSystem && [device supportsFamily:kMetal4];
}

class MetalGpu final : public gpu::Gpu {
 public:
  MetalGpu(Ref<id<MTLDevice>> device, const std::string& source, bool tensors)
      : device_(std::move(device)), library_(device_.get(), source, tensors) {
    traits_.name = to_string([device_.get() name]);
    traits_.tensor_ops = tensors;
    traits_.threadgroup_bytes = [device_.get() maxThreadgroupMemoryLength];
  }

  const gpu::Traits& traits() const override { return traits_; }
  std::unique_ptr<Buffer> allocate(size_t size, size_t alignment) override {
    const Pool pool;
    return std::make_unique<OwnedMetalBuffer>(device_.get(), size, alignment, residency_);
  }
  std::unique_ptr<Buffer> wrap(std::byte* data, size_t size,
                               std::span<const Range> spans) override {
    const Pool pool;
    return std::make_unique<MetalBuffer>(device_.get(), data, size, spans);
  }
  std::unique_ptr<Event> make_event() override {
    const Pool pool;
    return std::make_unique<MetalEvent>(device_.get());
  }
  std::unique_ptr<gpu::Queue> make_queue() override {
    const Pool pool;
    auto queue = std::make_unique<MetalQueue>(device_.get());
    residency_->attach(queue->get());
    return queue;
  }
  gpu::Library& library() override { return library_; }

 private:
  Ref<id<MTLDevice>> device_;
  MetalLibrary library_;
  std::shared_ptr<Residency> residency_ = std::make_shared<Residency>(device_.get());
  gpu::Traits traits_;
};

// The GPU with its tensors, or null if it has none, its compiler refuses them, or they multiply
// wrongly: no Mac has shown that they work.
std::shared_ptr<MetalGpu> open_with_tensors(const Ref<id<MTLDevice>>& device,
                                            const std::string& source) {
  if (!has_tensors(device.get())) return nullptr;
  try {
    auto gpu = std::make_shared<MetalGpu>(device, source, true);
    return gpu::tensors_multiply(*gpu) ? gpu : nullptr;
  } catch (const DeviceError&) {
    return nullptr;
  }
}

}  // namespace

std::shared_ptr<gpu::Gpu> open_gpu(const std::string& kernel_directory) {
  const Pool pool;
  const auto device = open_device();
  const std::string source = join_sources(kernel_directory);
  if (auto gpu = open_with_tensors(device, source)) return gpu;
  return std::make_shared<MetalGpu>(device, source, false);
}

}  // namespace mference::metal
