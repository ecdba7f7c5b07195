// Adds the time since the last lap to a counter.
#pragma once

#include <chrono>
#include <cstdint>

namespace mference {

class Stopwatch {
 public:
  void lap(uint64_t& counter) {
    const auto now = std::chrono::steady_clock::now();
    counter += static_cast<uint64_t>(std::chrono::nanoseconds(now - last_).count());
    last_ = now;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace mference
