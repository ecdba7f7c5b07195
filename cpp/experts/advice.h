// Read advice: telling the system which ranges of a layer file are about to be read. It is a hint;
// whether the system heeds, ignores or refuses it, the same bytes are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mference {

struct FileRange {
  size_t offset = 0;
  size_t size = 0;
};

// The union of the ranges, ascending: what overlaps or touches becomes one range.
std::vector<FileRange> merge(std::vector<FileRange> ranges);

enum class AdviceMode {
  kOff,
  kDefault,   // every request with missing experts
  kBounded,   // only requests within the limits
  kAdaptive,  // within the limits, only where the device computes meanwhile, and no more in a pass
              // whose advice once took long
};

// Raises DeviceError for a name that is none of off, default, bounded and adaptive.
AdviceMode parse_advice(const std::string& name);

struct AdviceLimits {
  int misses = 12;
  size_t bytes = size_t{384} << 20;
  uint64_t slow_call_nanoseconds = 1'000'000;
};

// Decides whether the missing experts of a request are advised. Not thread safe: one host thread
// plans.
class AdvicePolicy {
 public:
  explicit AdvicePolicy(AdviceMode mode, AdviceLimits limits = {}) : mode_(mode), limits_(limits) {}

  // A pass starts: a token, or a chunk of a prompt.
  void begin() { muted_ = false; }
  // `overlapped`: the device has work to do while the experts are read.
  bool wanted(int misses, size_t bytes, bool overlapped) const;
  // Notes how long one advice call of this pass took.
  void completed(uint64_t nanoseconds);

 private:
  AdviceMode mode_;
  AdviceLimits limits_;
  bool muted_ = false;  // this pass had a slow call
};

// Calls that were made and the bytes they named.
struct Advised {
  uint64_t calls = 0;
  uint64_t bytes = 0;
};

// Gives the advice: posix_fadvise(WILLNEED) on Linux, F_RDADVISE on macOS, nothing elsewhere.
class Adviser {
 public:
  explicit Adviser(AdviceMode mode) : policy_(mode) {}

  void begin() { policy_.begin(); }
  // One range for each missing expert.
  Advised advise(int fd, std::vector<FileRange> missing, bool overlapped);

 private:
  AdvicePolicy policy_;
};

}  // namespace mference
