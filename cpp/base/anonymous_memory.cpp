#include "base/anonymous_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/errors.h"

namespace mference {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t machine_memory() {
  return static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

[[noreturn]] void refuse(size_t size, const std::string& why) {
  throw DeviceError("cannot reserve " + std::to_string(size) + " bytes: " + why);
}

}  // namespace

AnonymousMemory::AnonymousMemory(size_t size, size_t alignment) : size_(size) {
  const size_t memory = machine_memory();
  if (size > memory) refuse(size, "the machine has " + std::to_string(memory));
  reserved_ = size + alignment;
  void* mapped =
      ::mmap(nullptr, reserved_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) refuse(size, std::strerror(errno));
  base_ = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<uintptr_t>(base_);
  data_ = base_ + (alignment - address % alignment) % alignment;
#if defined(MADV_HUGEPAGE)
  // A 4 KiB page costs a TLB miss every 8192 weights, and weights then arrive at little more than
  // half the speed. Refusal only costs speed.
  if (alignment >= kHugePage) ::madvise(data_, size_, MADV_HUGEPAGE);
#else
  (void)kHugePage;
#endif
}

AnonymousMemory::~AnonymousMemory() {
  ::munmap(base_, reserved_);
}

}  // namespace mference
