#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/errors.h"

namespace mference {

MappedFile::MappedFile(const std::string& path) {
  const auto fail = [&](const char* what) {
    throw DeviceError(std::string("cannot ") + what + " " + path + ": " + std::strerror(errno));
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("open");
  struct stat info{};
  if (::fstat(fd, &info) != 0) {
    ::close(fd);
    fail("stat");
  }
  size_ = static_cast<size_t>(info.st_size);
  // MAP_SHARED lets several processes and the page cache hold one copy.
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  if (mapped == MAP_FAILED) fail("map");
  data_ = static_cast<std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  ::munmap(data_, size_);
}

}  // namespace mference
