#include "base/memory_peak.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace mference {

namespace {

// Takes the next number off a line of numbers.
uint64_t next_number(std::string_view& line) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  line.remove_prefix(static_cast<size_t>(end - line.data()));
  if (!line.empty()) line.remove_prefix(1);
  return value;
}

}  // namespace

MemoryPeak::MemoryPeak()
    : fd_(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC)),
      page_(static_cast<uint64_t>(::sysconf(_SC_PAGESIZE))) {}

MemoryPeak::~MemoryPeak() {
  if (fd_ >= 0) ::close(fd_);
}

void MemoryPeak::sample() {
  char text[128];
  const ssize_t size = fd_ < 0 ? 0 : ::pread(fd_, text, sizeof(text), 0);
  if (size <= 0) return;
  // In pages: the address space, all that is resident, and the part of it that is shared or of files.
  std::string_view line(text, static_cast<size_t>(size));
  next_number(line);
  const uint64_t resident = next_number(line);
  const uint64_t files = next_number(line);
  own_ = std::max(own_, (resident - std::min(files, resident)) * page_);
  mapped_ = std::max(mapped_, files * page_);
}

}  // namespace mference
