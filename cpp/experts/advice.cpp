#include "experts/advice.h"

#include <fcntl.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "base/errors.h"
#include "base/stopwatch.h"

namespace mference {

namespace {

// What the system answers does not matter.
void ask(int fd, FileRange range) {
#if defined(F_RDADVISE)
  while (range.size > 0) {
    const size_t count = std::min<size_t>(range.size, INT_MAX);
    radvisory advice{static_cast<off_t>(range.offset), static_cast<int>(count)};
    (void)::fcntl(fd, F_RDADVISE, &advice);
    range = {range.offset + count, range.size - count};
  }
#elif defined(POSIX_FADV_WILLNEED)
  (void)::posix_fadvise(fd, static_cast<off_t>(range.offset), static_cast<off_t>(range.size),
                        POSIX_FADV_WILLNEED);
#else
  (void)fd;
  (void)range;
#endif
}

}  // namespace

std::vector<FileRange> merge(std::vector<FileRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const FileRange& a, const FileRange& b) { return a.offset < b.offset; });
  std::vector<FileRange> merged;
  for (const FileRange& range : ranges) {
    if (range.size == 0) continue;
    if (merged.empty() || range.offset > merged.back().offset + merged.back().size) {
      merged.push_back(range);
      continue;
    }
    FileRange& last = merged.back();
    last.size = std::max(last.size, range.offset + range.size - last.offset);
  }
  return merged;
}

AdviceMode parse_advice(const std::string& name) {
  if (name == "off") return AdviceMode::kOff;
  if (name == "default") return AdviceMode::kDefault;
  if (name == "bounded") return AdviceMode::kBounded;
  if (name == "adaptive") return AdviceMode::kAdaptive;
  throw DeviceError("no read advice is called '" + name +
                    "'; choose off, default, bounded or adaptive");
}

bool AdvicePolicy::wanted(int misses, size_t bytes, bool overlapped) const {
  if (mode_ == AdviceMode::kOff || misses == 0) return false;
  if (mode_ == AdviceMode::kDefault) return true;
  if (misses > limits_.misses || bytes > limits_.bytes) return false;
  return mode_ == AdviceMode::kBounded || (overlapped && !muted_);
}

void AdvicePolicy::completed(uint64_t nanoseconds) {
  muted_ = muted_ || nanoseconds >= limits_.slow_call_nanoseconds;
}

Advised Adviser::advise(int fd, std::vector<FileRange> missing, bool overlapped) {
  size_t bytes = 0;
  for (const FileRange& range : missing) bytes += range.size;
  Advised advised;
  if (!policy_.wanted(static_cast<int>(missing.size()), bytes, overlapped)) return advised;
  for (const FileRange& range : merge(std::move(missing))) {
    Stopwatch watch;
    ask(fd, range);
    uint64_t nanoseconds = 0;
    watch.lap(nanoseconds);
    policy_.completed(nanoseconds);
    ++advised.calls;
    advised.bytes += range.size;
  }
  return advised;
}

}  // namespace mference
