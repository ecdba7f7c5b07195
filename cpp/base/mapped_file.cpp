#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/errors.h"

namespace mference {

namespace {
// The largest page of the systems we know: a GPU of a Mac takes memory by such pages, and so the
// reservation goes on to the end of the file's last one.
constexpr size_t kAlignment = 16384;
}  // namespace

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
  reserved_ = size_ + 2 * kAlignment;
  void* reserved = ::mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) {
    ::close(fd);
    fail("map");
  }
  base_ = static_cast<std::byte*>(reserved);
  const auto address = reinterpret_cast<uintptr_t>(base_);
  data_ = base_ + (kAlignment - address % kAlignment) % kAlignment;
  // MAP_SHARED lets several processes and the page cache hold one copy.
  void* mapped = ::mmap(data_, size_, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
  ::close(fd);
  if (mapped == MAP_FAILED) {
    ::munmap(base_, reserved_);
    fail("map");
  }
}

MappedFile::~MappedFile() {
  ::munmap(base_, reserved_);
}

}  // namespace mference
