// A whole file mapped read-only, at a multiple of 16 KiB.
#pragma once

#include <cstddef>
#include <string>

namespace mference {

class MappedFile {
 public:
  // Raises DeviceError with the path and the system's reason.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* base_ = nullptr;
  size_t reserved_ = 0;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mference
