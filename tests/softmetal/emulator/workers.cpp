#include "emulator/workers.h"

#include <algorithm>

namespace softmetal {

Workers& Workers::instance() {
  static auto* workers = new Workers;  // its threads serve until the process ends
  return *workers;
}

void Workers::run(int helpers, const std::function<void()>& work) {
  Job job{&work, helpers};
  {
    const std::lock_guard lock(mutex_);
    for (; threads_ < static_cast<size_t>(helpers); ++threads_) {
      std::thread([this] { serve(); }).detach();
    }
    jobs_.push_back(&job);
  }
  posted_.notify_all();
  work();
  std::unique_lock lock(mutex_);
  jobs_.remove(&job);
  finished_.wait(lock, [&] { return job.running == 0; });
}

void Workers::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto open = [this] {
      return std::find_if(jobs_.begin(), jobs_.end(), [](Job* job) { return job->wanted > 0; });
    };
    posted_.wait(lock, [&] { return open() != jobs_.end(); });
    Job* job = *open();
    --job->wanted;
    ++job->running;
    lock.unlock();
    (*job->work)();
    lock.lock();
    --job->running;
    finished_.notify_all();
  }
}

}  // namespace softmetal
