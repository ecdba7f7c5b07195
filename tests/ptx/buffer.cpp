#include "buffer.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace mference::ptx {

namespace {
constexpr size_t kDriverAlignment = 256;  // of its allocations: small ones share a page
}

PtxBuffer::PtxBuffer(std::byte* data, size_t size, Memory memory) : data_(data), size_(size) {
  if (memory == Memory::kHost) return;
  const Driver& driver = Driver::instance();
  driver.enter();
  driver.check(driver.cuMemAlloc(&copy_, std::max<size_t>(size, 1)),
               "the GPU has no " + std::to_string(size) + " bytes left");
  address_ = copy_;
}

PtxBuffer::~PtxBuffer() {
  if (copy_ == 0) return;
  const Driver& driver = Driver::instance();
  driver.cuCtxSetCurrent(driver.context());
  driver.cuMemFree(copy_);
}

void PtxBuffer::use_pinned(std::byte* data) {
  if (copy_ != 0) return;
  const Driver& driver = Driver::instance();
  driver.check(driver.cuMemHostGetDevicePointer(&address_, data, 0), "cuMemHostGetDevicePointer");
}

std::unique_ptr<PinnedBuffer> PinnedBuffer::make(size_t size, size_t alignment, Memory memory) {
  const Driver& driver = Driver::instance();
  driver.enter();
  const size_t bytes = std::max<size_t>(size, 1) + (alignment > kDriverAlignment ? alignment : 0);
  void* base = nullptr;
  driver.check(driver.cuMemHostAlloc(&base, bytes, kHostPortable | kHostMapped),
               "cannot pin " + std::to_string(bytes) + " bytes");
  std::memset(base, 0, bytes);
  const auto first = reinterpret_cast<uintptr_t>(base);
  auto* data = reinterpret_cast<std::byte*>((first + alignment - 1) / alignment * alignment);
  return std::unique_ptr<PinnedBuffer>(new PinnedBuffer(base, data, size, memory));
}

PinnedBuffer::PinnedBuffer(void* base, std::byte* data, size_t size, Memory memory)
    : PtxBuffer(data, size, memory), base_(base) {
  use_pinned(data);
}

PinnedBuffer::~PinnedBuffer() {
  const Driver& driver = Driver::instance();
  driver.cuCtxSetCurrent(driver.context());
  driver.cuMemFreeHost(base_);
}

WrappedBuffer::WrappedBuffer(std::byte* data, size_t size, Memory memory)
    : PtxBuffer(data, size, memory) {
  if (memory == Memory::kCopied) return;
  const Driver& driver = Driver::instance();
  driver.enter();
  const CUresult result = driver.cuMemHostRegister(data, size, kHostPortable | kHostMapped);
  registered_ = result == 0;
  if (result == 0 || result == kAlreadyRegistered) {
    use_pinned(data);
    return;
  }
  pinned_copy_ = PinnedBuffer::make(size, kDriverAlignment, memory);
  std::memcpy(pinned_copy_->data(), data, size);
  use_pinned(pinned_copy_->data());
}

WrappedBuffer::~WrappedBuffer() {
  if (!registered_) return;
  const Driver& driver = Driver::instance();
  driver.cuCtxSetCurrent(driver.context());
  driver.cuMemHostUnregister(data());
}

}  // namespace mference::ptx
