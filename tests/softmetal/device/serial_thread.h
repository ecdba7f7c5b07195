// A thread that runs functions one after another.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace softmetal {

class SerialThread {
 public:
  SerialThread();
  // What was posted still runs, on a thread that nobody waits for.
  ~SerialThread();
  SerialThread(const SerialThread&) = delete;
  SerialThread& operator=(const SerialThread&) = delete;
  void post(std::function<void()> work);

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable posted;
    std::deque<std::function<void()>> work;
    bool ended = false;
  };
  static void serve(State& state);
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace softmetal
