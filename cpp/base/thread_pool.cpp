#include "base/thread_pool.h"

#include <algorithm>

#include "base/start_thread.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mference {

namespace {
// About 20 microseconds: longer than the gap between two loops of a decode step.
constexpr int kSpins = 4000;
// The least a loop must be worth to be shared: with a thread that still spins, about 15
// microseconds; with one that sleeps, about 60, which waking it can take on a virtual machine.
constexpr size_t kSpinningBytes = 384 << 10;
constexpr size_t kSleepingBytes = 1536 << 10;
}  // namespace

void spin_pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

ThreadPool::ThreadPool(int threads) {
  try {
    for (int i = 1; i < threads; ++i) workers_.push_back(start_thread([this] { work(); }));
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_.store(true);
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

// Only a thread that holds a task of this loop looks at the loop's body, and the loop lasts until
// that task is done. So run() need not wait for workers that come late or not at all, as they do
// when other processes want the processors.
void ThreadPool::drain() noexcept {
  for (int left = left_.fetch_sub(1); left > 0; left = left_.fetch_sub(1)) {
    const int first = (bundles_ - left) * bundle_;
    const int last = std::min(first + bundle_, tasks_);
    for (int i = first; i < last; ++i) (*body_)(i);
    done_.fetch_add(1);
  }
}

void ThreadPool::run(int tasks, size_t bytes, const std::function<void(int)>& body) {
  const size_t all = static_cast<size_t>(std::max(tasks, 0)) * bytes;
  const size_t least = sleeping_.load() > 0 ? kSleepingBytes : kSpinningBytes;
  if (workers_.empty() || tasks <= 1 || all < least) {
    for (int i = 0; i < tasks; ++i) body(i);
    return;
  }
  bool asleep;
  {
    std::lock_guard lock(mutex_);
    body_ = &body;
    tasks_ = tasks;
    bundle_ = static_cast<int>(std::max<size_t>(1, kBundleBytes / std::max<size_t>(1, bytes)));
    bundles_ = (tasks + bundle_ - 1) / bundle_;
    done_.store(0);
    left_.store(bundles_);
    generation_.fetch_add(1);
    asleep = sleeping_ > 0;
  }
  if (asleep) wake_.notify_all();
  drain();
  for (int spin = 0; done_.load() != bundles_; ++spin) {
    // A worker that lost its processor in the middle of a task may be waiting for this one.
    if (spin < kSpins) {
      spin_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::work() {
  uint64_t seen = 0;
  for (;;) {
    for (int spin = 0; generation_.load() == seen && spin < kSpins; ++spin) spin_pause();
    if (generation_.load() == seen) {
      std::unique_lock lock(mutex_);
      ++sleeping_;
      wake_.wait(lock, [&] { return generation_.load() != seen; });
      --sleeping_;
    }
    seen = generation_.load();
    if (stopping_.load()) return;
    drain();
  }
}

}  // namespace mference
