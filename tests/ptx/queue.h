// An in-order CUDA stream with a thread that feeds it.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "buffer.h"
#include "device/gpu/gpu.h"
#include "driver.h"
#include "times.h"

namespace mference::ptx {

// As the CPU's stream: the thread takes what was committed, launches it, and stands at waits
// itself. Before a signal, and before the queue is idle, it waits for the GPU.
class PtxQueue final : public gpu::Queue {
 public:
  // With `times` every launch runs on copies of its buffers, and is timed.
  explicit PtxQueue(Times* times);
  ~PtxQueue() override;

  void launch(const gpu::Launch& launch) override;
  void wait(Event& event, uint64_t value) override { pending_.emplace_back(Wait{&event, value}); }
  void signal(Event& event, uint64_t value) override {
    pending_.emplace_back(Signal{&event, value});
  }
  void commit() override;
  void synchronize() override;
  void check() override;
  void abort(std::exception_ptr error) override;
  uint64_t stalled_nanoseconds() const override { return stalled_.load(); }

 private:
  struct Launch {
    gpu::Launch launch;
    std::vector<std::byte> constants;
  };
  struct Wait {
    Event* event;
    uint64_t value;
  };
  struct Signal {
    Event* event;
    uint64_t value;
  };
  using Command = std::variant<Launch, Wait, Signal>;

  void work();
  void perform(Launch& launch);
  void perform(const Wait& wait);
  void perform(const Signal& signal);
  void finish();
  bool failed();

  const Driver& driver_;
  Times* times_;
  CUstream stream_ = nullptr;
  CUdeviceptr constants_ = 0;      // of the launch that runs
  std::vector<Launch> in_flight_;  // since the GPU was last waited for

  std::vector<Command> pending_;  // encoded, not yet committed: the host's own
  std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable idle_;
  std::deque<Command> queue_;
  std::atomic<uint64_t> stalled_{0};
  bool running_ = false;
  bool stop_ = false;
  std::exception_ptr error_;
  std::thread worker_;
};

}  // namespace mference::ptx
