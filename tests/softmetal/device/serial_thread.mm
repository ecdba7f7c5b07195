#include "device/serial_thread.h"

#include <thread>

#include "device/ref.h"

namespace softmetal {

SerialThread::SerialThread() {
  std::thread([state = state_] { serve(*state); }).detach();
}

SerialThread::~SerialThread() {
  const std::lock_guard lock(state_->mutex);
  state_->ended = true;
  state_->posted.notify_all();
}

void SerialThread::post(std::function<void()> work) {
  const std::lock_guard lock(state_->mutex);
  state_->work.push_back(std::move(work));
  state_->posted.notify_all();
}

void SerialThread::serve(State& state) {
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.posted.wait(lock, [&] { return state.ended || !state.work.empty(); });
    if (state.work.empty()) return;
    std::function<void()> work = std::move(state.work.front());
    state.work.pop_front();
    lock.unlock();
    {
      const Pool pool;
      work();
      work = nullptr;
    }
    lock.lock();
  }
}

}  // namespace softmetal
