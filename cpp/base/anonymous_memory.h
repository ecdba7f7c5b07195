// Zero-filled memory whose pages cost nothing until they are touched.
#pragma once

#include <cstddef>

namespace mference {

class AnonymousMemory {
 public:
  // `alignment` is a power of two. Raises DeviceError "cannot reserve ... bytes" if the machine has
  // not that much memory, which a system that overcommits would only tell by killing the process.
  AnonymousMemory(size_t size, size_t alignment);
  ~AnonymousMemory();
  AnonymousMemory(const AnonymousMemory&) = delete;
  AnonymousMemory& operator=(const AnonymousMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* base_ = nullptr;
  size_t reserved_ = 0;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mference
