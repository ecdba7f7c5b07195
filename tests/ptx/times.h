// How long kernels take, measured by the GPU's own events.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "driver.h"

namespace mference::ptx {

// One launch: microseconds of each repetition, with what it reads in the caches if it fits them,
// and with other data there.
struct Timing {
  std::string kernel;
  std::vector<float> warm, cold;
};

class Times {
 public:
  Times();

  // Repeats a launch on a stream, and waits for it.
  void measure(const std::string& kernel, CUstream stream, const std::function<void()>& launch);
  // What was measured since the last call.
  std::vector<Timing> take();

 private:
  float once(CUstream stream, const std::function<void()>& launch);

  const Driver& driver_;
  CUevent begin_ = nullptr, end_ = nullptr;
  CUdeviceptr other_ = 0;
  std::mutex mutex_;
  std::vector<Timing> timings_;
};

}  // namespace mference::ptx
