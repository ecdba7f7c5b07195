// A whole file mapped read-only.
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
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mference
