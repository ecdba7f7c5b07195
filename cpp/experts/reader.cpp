#include "experts/reader.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/errors.h"
#include "base/start_thread.h"

namespace mference {

namespace {

// Reads the whole range; returns an empty string or what went wrong.
std::string read_fully(const ReadRequest& request) {
  size_t done = 0;
  while (done < request.size) {
    const ssize_t got = ::pread(request.fd, request.target + done, request.size - done,
                                static_cast<off_t>(request.offset + done));
    if (got > 0) {
      done += static_cast<size_t>(got);
    } else if (got == 0) {
      return "cannot read " + std::to_string(request.size) + " bytes at offset " +
             std::to_string(request.offset) + " of " + request.path +
             ": the file ends early; run `mference verify` on the install";
    } else if (errno != EINTR) {
      return "cannot read " + std::to_string(request.size) + " bytes at offset " +
             std::to_string(request.offset) + " of " + request.path + ": " + std::strerror(errno);
    }
  }
  return {};
}

}  // namespace

void Fill::finish(size_t index, std::string error, uint64_t nanoseconds) {
  std::unique_lock lock(mutex_);
  ok_[index] = error.empty();
  busy_ += nanoseconds;
  if (error_.empty()) error_ = std::move(error);
  if (--remaining_ > 0) return;
  watch_.lap(span_);
  const auto callback = std::exchange(callback_, nullptr);
  done_.notify_all();
  lock.unlock();
  if (callback) callback(this->error());
}

bool Fill::ended() const {
  const std::lock_guard lock(mutex_);
  return remaining_ == 0;
}

void Fill::when_ended(std::function<void(std::exception_ptr)> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (remaining_ > 0) {
      callback_ = std::move(callback);
      return;
    }
  }
  callback(error());
}

std::exception_ptr Fill::error() const {
  return error_.empty() ? nullptr : std::make_exception_ptr(ExpertFillError(error_));
}

bool Fill::join() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return remaining_ == 0; });
  return error_.empty();
}

void Fill::wait() {
  if (!join()) throw ExpertFillError(error_);
}

Reader::Reader(int threads) {
  try {
    for (int i = 0; i < threads; ++i) workers_.push_back(start_thread([this] { work(); }));
  } catch (...) {
    stop();
    throw;
  }
}

Reader::~Reader() {
  stop();
}

void Reader::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ready_.notify_all();
  for (auto& worker : workers_) worker.join();
}

std::shared_ptr<Fill> Reader::submit(std::vector<ReadRequest> requests) {
  auto fill = std::make_shared<Fill>(requests.size());
  // All of them or, if memory runs out, none: a read nobody waits for would write a slot in use.
  std::vector<Job> jobs;
  for (size_t i = 0; i < requests.size(); ++i) jobs.push_back({std::move(requests[i]), fill, i});
  {
    std::lock_guard lock(mutex_);
    jobs_.insert(jobs_.end(), std::make_move_iterator(jobs.begin()),
                 std::make_move_iterator(jobs.end()));
  }
  ready_.notify_all();
  return fill;
}

void Reader::work() {
  for (;;) {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    const auto start = std::chrono::steady_clock::now();
    std::string error = read_fully(job.request);
    const auto spent = std::chrono::steady_clock::now() - start;
    job.fill->finish(job.index, std::move(error),
                     static_cast<uint64_t>(std::chrono::nanoseconds(spent).count()));
  }
}

}  // namespace mference
