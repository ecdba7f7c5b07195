#include "experts/fill_gate.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

namespace mference {

struct FillGate::State {
  std::unique_ptr<Event> event;
  std::function<void(std::exception_ptr)> failed;
  std::mutex mutex;
  std::condition_variable empty;
  std::deque<bool> ended;  // of the fills behind the event's value, in order
  uint64_t value = 0;      // fills that the event has passed

  // A fill has ended. Signals under the lock: values must reach the event in ascending order.
  // The error is handed on, not shared: whoever hears of it may free it.
  void end(uint64_t number, std::exception_ptr error) {
    if (error) failed(std::move(error));
    const std::lock_guard lock(mutex);
    ended[number - value - 1] = true;
    const uint64_t before = value;
    while (!ended.empty() && ended.front()) {
      ended.pop_front();
      ++value;
    }
    if (value > before) event->signal(value);
    if (ended.empty()) empty.notify_all();
  }
};

FillGate::FillGate(Device& device, std::function<void(std::exception_ptr)> failed)
    : state_(std::make_shared<State>()) {
  state_->event = device.make_event();
  state_->failed = std::move(failed);
}

FillGate::~FillGate() {
  std::unique_lock lock(state_->mutex);
  state_->empty.wait(lock, [&] { return state_->ended.empty(); });
}

uint64_t FillGate::add(Fill& fill) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended.push_back(false);
    number = state_->value + state_->ended.size();
  }
  fill.when_ended(
      [state = state_, number](std::exception_ptr error) { state->end(number, std::move(error)); });
  return number;
}

Event& FillGate::event() {
  return *state_->event;
}

}  // namespace mference
