// A bounded pool of threads that read byte ranges of files with pread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/stopwatch.h"

namespace mference {

struct ReadRequest {
  int fd = -1;
  std::string path;  // for messages
  size_t offset = 0;
  size_t size = 0;
  std::byte* target = nullptr;
};

// A batch of reads that finish in any order. wait() returns when all have ended and raises
// ExpertFillError if one failed; succeeded() then tells which did not.
class Fill {
 public:
  explicit Fill(size_t count) : ok_(count, false), remaining_(count) {}
  void finish(size_t index, std::string error, uint64_t nanoseconds);
  // Blocks without raising; true if every read succeeded.
  bool join();
  void wait();
  bool succeeded(size_t index) const { return ok_[index]; }
  // Have all reads ended, whether well or not?
  bool ended() const;
  // Calls back once, with the error if there is one, when all reads have ended: from the thread of
  // the last read, or at once if there is nothing left to wait for.
  void when_ended(std::function<void(std::exception_ptr)> callback);
  // Sum of the reads' own durations; valid after join().
  uint64_t busy_nanoseconds() const { return busy_; }
  // From the submission to the end of the last read; valid after join().
  uint64_t span_nanoseconds() const { return span_; }

 private:
  std::exception_ptr error() const;

  mutable std::mutex mutex_;
  std::condition_variable done_;
  std::function<void(std::exception_ptr)> callback_;
  std::vector<bool> ok_;
  size_t remaining_;
  std::string error_;
  Stopwatch watch_;
  uint64_t busy_ = 0;
  uint64_t span_ = 0;
};

class Reader {
 public:
  // Raises DeviceError if the system refuses that many threads.
  explicit Reader(int threads);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Starts the reads. The targets must stay valid, and be written by nobody else, until the
  // returned fill has ended.
  std::shared_ptr<Fill> submit(std::vector<ReadRequest> requests);

 private:
  struct Job {
    ReadRequest request;
    std::shared_ptr<Fill> fill;
    size_t index;
  };
  void work();
  void stop();

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Job> jobs_;
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace mference
