#include "base/thread_pool.h"

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
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_.store(true);
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::drain(const std::function<void(int)>& body, int tasks) {
  for (int i = next_.fetch_add(1); i < tasks; i = next_.fetch_add(1)) body(i);
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
    next_.store(0);
    active_.store(static_cast<int>(workers_.size()));
    generation_.fetch_add(1);
    asleep = sleeping_ > 0;
  }
  if (asleep) wake_.notify_all();
  drain(body, tasks);
  while (active_.load() != 0) spin_pause();
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
    if (stop_.load()) return;
    drain(*body_, tasks_);
    active_.fetch_sub(1);
  }
}

}  // namespace mference
