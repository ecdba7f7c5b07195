// The highest resident memory of this process at the moments it was looked at.
#pragma once

#include <cstdint>

namespace mference {

class MemoryPeak {
 public:
  MemoryPeak();
  ~MemoryPeak();
  MemoryPeak(const MemoryPeak&) = delete;
  MemoryPeak& operator=(const MemoryPeak&) = delete;

  // A few microseconds. Where the system does not tell, the peaks stay zero.
  void sample();
  uint64_t own() const { return own_; }        // bytes of anonymous memory
  uint64_t mapped() const { return mapped_; }  // bytes of resident file pages

 private:
  int fd_ = -1;
  uint64_t page_ = 0;
  uint64_t own_ = 0;
  uint64_t mapped_ = 0;
};

}  // namespace mference
