#include "base/thread_pool.h"

#include "base/start_thread.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mference {

namespace {
// About 20 microseconds: longer than the gap between two loops of a decode step.
constexpr int kSpins = 4000;
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
    (*body_)(tasks_ - left);
    done_.fetch_add(1);
  }
}

void ThreadPool::run(int tasks, const std::function<void(int)>& body) {
  if (workers_.empty() || tasks <= 1) {
    for (int i = 0; i < tasks; ++i) body(i);
    return;
  }
  bool asleep;
  {
    std::lock_guard lock(mutex_);
    body_ = &body;
    tasks_ = tasks;
    done_.store(0);
    left_.store(tasks);
    generation_.fetch_add(1);
    asleep = sleeping_ > 0;
  }
  if (asleep) wake_.notify_all();
  drain();
  for (int spin = 0; done_.load() != tasks; ++spin) {
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
