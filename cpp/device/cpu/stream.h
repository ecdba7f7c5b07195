// The CPU's queue: a worker thread that runs encoded commands in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "device/cpu/execute.h"
#include "device/device.h"

namespace mference::cpu {

class CpuEvent final : public Event {
 public:
  void signal(uint64_t value) override;
  void wait(uint64_t value) override;
  uint64_t value() const override { return value_.load(); }

 private:
  std::atomic<uint64_t> value_{0};
  std::mutex mutex_;
  std::condition_variable reached_;
};

class CpuStream final : public Stream {
 public:
  explicit CpuStream(const Options& options);
  ~CpuStream() override;

  void encode(const Operation& operation) override { pending_.emplace_back(operation); }
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
  struct Wait {
    Event* event;
    uint64_t value;
  };
  struct Signal {
    Event* event;
    uint64_t value;
  };
  using Command = std::variant<Operation, Wait, Signal>;

  void work();
  void perform(const Command& command);
  bool failed();

  Context context_;
  std::vector<Command> pending_;  // encoded, not yet committed: the host's own

  std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable idle_;
  std::deque<Command> queue_;
  std::atomic<uint64_t> stalled_{0};
  std::atomic<size_t> queued_{0};  // lets the worker spin without taking the lock
  bool running_ = false;
  bool stop_ = false;
  std::exception_ptr error_;
  std::thread worker_;
};

}  // namespace mference::cpu
