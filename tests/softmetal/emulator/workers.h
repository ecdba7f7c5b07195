// The OS threads that run threadgroups beside a queue's own.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace softmetal {

class Workers {
 public:
  static Workers& instance();

  // Calls `work` on up to `helpers` of them and on this thread, and returns when all have returned.
  void run(int helpers, const std::function<void()>& work);

 private:
  struct Job {
    const std::function<void()>* work;
    int wanted;
    int running = 0;
  };
  void serve();

  std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable finished_;
  std::list<Job*> jobs_;
  size_t threads_ = 0;
};

}  // namespace softmetal
