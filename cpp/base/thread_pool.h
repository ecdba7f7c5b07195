// A fixed set of threads that run one parallel loop at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace mference {

// Workers spin briefly between loops, since a forward pass issues several hundred of them a token,
// then sleep, so that an idle model costs nothing.
class ThreadPool {
 public:
  // The least work that is handed out, in the bytes of run(): about 4 microseconds of one thread's
  // memory traffic, more than it costs to hand out.
  static constexpr size_t kBundleBytes = 96 << 10;

  // `threads` counts the calling thread: 1 runs everything inline. Raises DeviceError if the system
  // refuses that many.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(index) once for each index in [0, tasks), on any thread, and returns when all are
  // done. `bytes` is the memory traffic of one task, or what takes as long: small tasks are handed
  // out several at a time, and a loop too short to be worth a second thread runs on the caller's.
  // One caller at a time; body must not throw.
  void run(int tasks, size_t bytes, const std::function<void(int)>& body);

 private:
  void work();
  void drain() noexcept;  // other threads may still be using a body that threw
  void stop();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> left_{0};  // bundles of tasks not yet handed out, or less than one
  std::atomic<int> done_{0};  // bundles
  std::atomic<bool> stopping_{false};
  std::atomic<int> sleeping_{0};
  int tasks_ = 0;
  int bundle_ = 1;  // tasks handed out together
  int bundles_ = 0;
  const std::function<void(int)>* body_ = nullptr;
};

// Tells the processor that this is a spin loop.
void spin_pause();

}  // namespace mference
