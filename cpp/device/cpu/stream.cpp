#include "device/cpu/stream.h"

#include <utility>

#include "base/start_thread.h"
#include "base/stopwatch.h"
#include "device/check.h"

namespace mference::cpu {

namespace {
// Longer than the host needs to plan a layer's experts, shorter than anyone would notice as load.
constexpr int kSpins = 2000;

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
}  // namespace

void CpuEvent::signal(uint64_t value) {
  {
    std::lock_guard lock(mutex_);
    if (value_.load() < value) value_.store(value);
  }
  reached_.notify_all();
}

void CpuEvent::wait(uint64_t value) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value_.load() >= value) return;
    spin_pause();
  }
  std::unique_lock lock(mutex_);
  reached_.wait(lock, [&] { return value_.load() >= value; });
}

CpuStream::CpuStream(const Options& options)
    : context_(options), worker_(start_thread([this] { work(); })) {}

CpuStream::~CpuStream() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    queued_.fetch_add(1);
  }
  work_ready_.notify_all();
  worker_.join();
}

void CpuStream::commit() {
  if (pending_.empty()) return;
  {
    std::lock_guard lock(mutex_);
    for (auto& command : pending_) queue_.push_back(std::move(command));
    queued_.fetch_add(pending_.size());
  }
  pending_.clear();
  work_ready_.notify_one();
}

void CpuStream::synchronize() {
  commit();
  {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return queue_.empty() && !running_; });
  }
  check();
}

void CpuStream::check() {
  std::unique_lock lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CpuStream::abort(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
}

bool CpuStream::failed() {
  std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

void CpuStream::perform(const Command& command) {
  std::visit(Overload{
                 [&](const Operation& operation) {
                   if (failed()) return;
                   std::visit(
                       [&](const auto& op) {
                         mference::check(op);
                         execute(op, context_);
                       },
                       operation);
                 },
                 [&](const Wait& wait) {
                   Stopwatch watch;
                   wait.event->wait(wait.value);
                   uint64_t stood = 0;
                   watch.lap(stood);
                   stalled_.fetch_add(stood);
                 },
                 [](const Signal& signal) { signal.event->signal(signal.value); },
             },
             command);
}

void CpuStream::work() {
  for (;;) {
    for (int spin = 0; queued_.load() == 0 && spin < kSpins; ++spin) spin_pause();
    std::unique_lock lock(mutex_);
    work_ready_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Command command = std::move(queue_.front());
    queue_.pop_front();
    queued_.fetch_sub(1);
    running_ = true;
    lock.unlock();
    try {
      perform(command);
    } catch (...) {
      abort(std::current_exception());
    }
    lock.lock();
    running_ = false;
    if (queue_.empty()) idle_.notify_all();
  }
}

}  // namespace mference::cpu
