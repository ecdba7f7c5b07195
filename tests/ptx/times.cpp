#include "times.h"

#include <utility>

namespace mference::ptx {

namespace {
constexpr int kRepeats = 20;
constexpr size_t kOtherBytes = size_t{256} << 20;  // several times the caches
}  // namespace

Times::Times() : driver_(Driver::instance()) {
  driver_.enter();
  driver_.check(driver_.cuEventCreate(&begin_, 0), "cuEventCreate");
  driver_.check(driver_.cuEventCreate(&end_, 0), "cuEventCreate");
  driver_.check(driver_.cuMemAlloc(&other_, kOtherBytes), "cuMemAlloc");
}

float Times::once(CUstream stream, const std::function<void()>& launch) {
  driver_.check(driver_.cuEventRecord(begin_, stream), "cuEventRecord");
  launch();
  driver_.check(driver_.cuEventRecord(end_, stream), "cuEventRecord");
  driver_.check(driver_.cuStreamSynchronize(stream), "cuStreamSynchronize");
  float milliseconds = 0.0f;
  driver_.check(driver_.cuEventElapsedTime(&milliseconds, begin_, end_), "cuEventElapsedTime");
  return milliseconds * 1000.0f;
}

void Times::measure(const std::string& kernel, CUstream stream,
                    const std::function<void()>& launch) {
  const std::lock_guard lock(mutex_);
  Timing timing{kernel, {}, {}};
  once(stream, launch);
  for (int i = 0; i < kRepeats; ++i) timing.warm.push_back(once(stream, launch));
  for (int i = 0; i < kRepeats; ++i) {
    driver_.check(
        driver_.cuMemsetD8Async(other_, static_cast<unsigned char>(i), kOtherBytes, stream),
        "cuMemsetD8Async");
    timing.cold.push_back(once(stream, launch));
  }
  timings_.push_back(std::move(timing));
}

std::vector<Timing> Times::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(timings_, {});
}

}  // namespace mference::ptx
