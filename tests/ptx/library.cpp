#include "library.h"

#include <array>
#include <bit>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/errors.h"

namespace mference::ptx {

namespace {

constexpr size_t kHeadChunks = 10;  // the index of the constant of metal/common.h

// A kernel's text. attention_split has one for each number of chunks of a head: the compiler has to
// know the length of its arrays, or they do not lie in registers.
std::string read(const std::string& directory, const std::string& kernel,
                 const std::vector<int32_t>& constants) {
  std::filesystem::path path = std::filesystem::path(directory) / (kernel + ".ptx");
  if (constants.size() > kHeadChunks) {
    auto special = std::filesystem::path(directory) /
                   (kernel + "-" + std::to_string(constants[kHeadChunks]) + ".ptx");
    if (std::filesystem::exists(special)) path = special;
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.empty()) {
    throw DeviceError("cannot read the kernel at " + path.string() + "; tests/ptx/prepare.sh");
  }
  return text;
}

// Writes the values of function constants in the place of the loads of them, so that the assembler
// drops what they rule out.
std::string specialize(const std::string& kernel, const std::string& text,
                       const std::vector<int32_t>& constants) {
  constexpr std::string_view kLoad = "ld.const.u32", kArray = "msl_constant_values";
  std::string out = "// function constants:";
  for (const int32_t value : constants) out += " " + std::to_string(value);
  out += "\n";
  for (size_t first = 0; first < text.size();) {
    const size_t end = std::min(text.find('\n', first), text.size() - 1) + 1;
    std::string line = text.substr(first, end - first);
    first = end;
    const size_t name = line.find(kArray);
    if (name != std::string::npos && !line.starts_with(".visible .const")) {
      const size_t load = line.find(kLoad), open = line.find('[');
      size_t offset = 0;
      const char* digits = line.data() + name + kArray.size();
      if (*digits == '+') std::from_chars(digits + 1, line.data() + line.size(), offset);
      const size_t index = offset / 16;
      if (load == std::string::npos || open == std::string::npos || offset % 16 != 0 ||
          index >= constants.size()) {
        throw DeviceError("the PTX of " + kernel + " reads a function constant as: " + line);
      }
      line.replace(open, line.find(']') + 1 - open, std::to_string(constants[index]));
      line.replace(load, kLoad.size(), "mov.u32");
    }
    out += line;
  }
  return out;
}

// The same with a bound on the threads of a threadgroup.
std::string bounded(const std::string& kernel, const std::string& text, uint32_t threads) {
  const size_t entry = text.find(".visible .entry " + kernel + "(");
  const size_t body = entry == std::string::npos ? entry : text.find("\n{", entry);
  if (body == std::string::npos) throw DeviceError("the PTX of " + kernel + " has no such entry");
  return text.substr(0, body) + "\n.maxntid " + std::to_string(threads) + ", 1, 1" +
         text.substr(body);
}

}  // namespace

CUfunction PtxPipeline::function(uint32_t threads) const {
  const std::lock_guard lock(mutex_);
  if (threads <= threads_) return function_;
  const Driver& driver = Driver::instance();
  driver.enter();
  const uint32_t most = std::max(128u, std::bit_ceil(threads));
  const std::string text = bounded(kernel_, text_, most);
  std::array<char, 8192> log{};
  std::array<int, 2> options{kJitErrorLog, kJitErrorLogBytes};
  std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
  CUmodule module = nullptr;  // stays loaded: launches may still run its kernel
  driver.check(driver.cuModuleLoadDataEx(&module, text.c_str(), 2, options.data(), values.data()),
               "the GPU does not take the kernel " + kernel_ + ": " + log.data());
  driver.check(driver.cuModuleGetFunction(&function_, module, kernel_.c_str()),
               "there is no kernel " + kernel_);
  threads_ = most;
  return function_;
}

const gpu::Pipeline& PtxLibrary::pipeline(const std::string& kernel,
                                          const std::vector<int32_t>& constants) {
  const std::lock_guard lock(mutex_);
  auto& known = pipelines_[{kernel, constants}];
  if (!known) {
    known = std::make_unique<PtxPipeline>(
        kernel, specialize(kernel, read(directory_, kernel, constants), constants));
  }
  return *known;
}

}  // namespace mference::ptx
