#include "experts/slab.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/errors.h"

namespace mference {

namespace {
// Huge pages on Linux and the registration unit of Metal's shared buffers both want this alignment.
constexpr size_t kAlignment = size_t{2} << 20;
}  // namespace

Slab::Slab(int slots, size_t stride) {
  const size_t wanted = static_cast<size_t>(slots) * stride;
  size_ = (wanted + kAlignment - 1) / kAlignment * kAlignment;
  reserved_ = size_ + kAlignment;
  void* mapped =
      ::mmap(nullptr, reserved_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    throw DeviceError("cannot reserve " + std::to_string(size_) + " bytes for " +
                      std::to_string(slots) + " expert slots: " + std::strerror(errno) +
                      "; use fewer slots");
  }
  base_ = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<uintptr_t>(base_);
  data_ = base_ + ((kAlignment - address % kAlignment) % kAlignment);
#if defined(MADV_HUGEPAGE)
  // A 4 KiB page costs a TLB miss every 8192 weights; refusal only costs speed.
  ::madvise(data_, size_, MADV_HUGEPAGE);
#endif
}

Slab::~Slab() {
  ::munmap(base_, reserved_);
}

}  // namespace mference
