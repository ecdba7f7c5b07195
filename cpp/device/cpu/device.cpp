#include "device/cpu/device.h"

#include <cstring>
#include <new>
#include <thread>

#include "base/anonymous_memory.h"
#include "base/errors.h"
#include "device/cpu/stream.h"

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include "device/cpu/x86_features.h"
#endif

namespace mference::cpu {

namespace {

constexpr int kMaxThreads = 1024;
// Smaller buffers come from the allocator, where sanitizers watch their ends.
constexpr size_t kLargeBuffer = size_t{1} << 20;

class LargeBuffer final : public Buffer {
 public:
  LargeBuffer(size_t size, size_t alignment) : memory_(size, alignment) {}
  std::byte* data() const override { return memory_.data(); }
  size_t size() const override { return memory_.size(); }

 private:
  AnonymousMemory memory_;
};

class OwnedBuffer final : public Buffer {
 public:
  OwnedBuffer(size_t size, size_t alignment)
      : alignment_(alignment),
        data_(static_cast<std::byte*>(::operator new[](size, std::align_val_t{alignment}))),
        size_(size) {
    std::memset(data_, 0, size);
  }
  ~OwnedBuffer() override { ::operator delete[](data_, std::align_val_t{alignment_}); }
  OwnedBuffer(const OwnedBuffer&) = delete;
  OwnedBuffer& operator=(const OwnedBuffer&) = delete;
  std::byte* data() const override { return data_; }
  size_t size() const override { return size_; }

 private:
  size_t alignment_;
  std::byte* data_;
  size_t size_;
};

class WrappedBuffer final : public Buffer {
 public:
  WrappedBuffer(std::byte* data, size_t size) : data_(data), size_(size) {}
  std::byte* data() const override { return data_; }
  size_t size() const override { return size_; }

 private:
  std::byte* data_;
  size_t size_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const Options& options) : options_(options) {
    if (options_.threads == 0) options_.threads = processor_count();
    if (options_.threads < 1 || options_.threads > kMaxThreads) {
      throw DeviceError("the CPU device takes 1 to " + std::to_string(kMaxThreads) + " threads");
    }
  }
  std::string name() const override {
    return "cpu (" + isa_name(options_.isa) + ", " + std::to_string(options_.threads) +
           (options_.threads == 1 ? " thread)" : " threads)");
  }
  std::unique_ptr<Buffer> allocate(size_t size, size_t alignment) override {
    if (size >= kLargeBuffer) return std::make_unique<LargeBuffer>(size, alignment);
    return std::make_unique<OwnedBuffer>(size, alignment);
  }
  std::unique_ptr<Buffer> wrap(std::byte* data, size_t size,
                               std::span<const Range> /*spans*/) override {
    return std::make_unique<WrappedBuffer>(data, size);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CpuStream>(options_); }

 private:
  Options options_;
};

}  // namespace

std::vector<Isa> available() {
  std::vector<Isa> found{Isa::kPortable};
#if defined(__x86_64__)
  const X86Features features = x86_features();
  if (features.avx2) found.push_back(Isa::kAvx2);
  if (features.avx512) found.push_back(Isa::kAvx512);
#endif
  return found;
}

std::string isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

Isa parse_isa(const std::string& name) {
  const auto found = available();
  if (name == "auto") return found.back();
  std::string names = "auto";
  for (const Isa isa : found) {
    if (isa_name(isa) == name) return isa;
    names += ", " + isa_name(isa);
  }
  throw DeviceError("instruction set '" + name + "' is not available here; choose one of " + names);
}

int processor_count() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
#endif
  const unsigned count = std::thread::hardware_concurrency();
  return count == 0 ? 1 : static_cast<int>(count);
}

std::unique_ptr<Device> make_device(const Options& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace mference::cpu
