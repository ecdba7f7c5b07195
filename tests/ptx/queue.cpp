#include "queue.h"

#include <cstring>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/start_thread.h"
#include "base/stopwatch.h"
#include "library.h"

namespace mference::ptx {

namespace {

constexpr size_t kConstantBytes = 4096;  // at most, as Metal's setBytes takes
constexpr size_t kLongLog = 16;          // launches that an error names

// msl::Arguments of tests/softmetal/mslc/include/msl/entry.h, the one parameter of every kernel.
struct Arguments {
  CUdeviceptr buffer[31];
  uint32_t threadgroup[8];
  uint32_t threads_per_grid[3];
};
static_assert(sizeof(Arguments) == 296);
static_assert(gpu::Launch::kMaxViews < 31);

}  // namespace

PtxQueue::PtxQueue(Times* times) : driver_(Driver::instance()), times_(times) {
  driver_.enter();
  driver_.check(driver_.cuStreamCreate(&stream_, kStreamNonBlocking), "cuStreamCreate");
  driver_.check(driver_.cuMemAlloc(&constants_, kConstantBytes), "cuMemAlloc");
  worker_ = start_thread([this] { work(); });
}

PtxQueue::~PtxQueue() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_ready_.notify_all();
  worker_.join();
  driver_.cuCtxSetCurrent(driver_.context());
  driver_.cuStreamDestroy(stream_);
  driver_.cuMemFree(constants_);
}

void PtxQueue::launch(const gpu::Launch& launch) {
  if (launch.constants_size > kConstantBytes) {
    throw DeviceError(std::string("the arguments of ") + launch.label +
                      " have more than 4096 bytes");
  }
  const auto* bytes = static_cast<const std::byte*>(launch.constants);
  pending_.emplace_back(Launch{launch, {bytes, bytes + launch.constants_size}});
}

void PtxQueue::commit() {
  if (pending_.empty()) return;
  {
    std::lock_guard lock(mutex_);
    for (auto& command : pending_) queue_.push_back(std::move(command));
  }
  pending_.clear();
  work_ready_.notify_one();
}

void PtxQueue::synchronize() {
  commit();
  {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return queue_.empty() && !running_; });
  }
  check();
}

void PtxQueue::check() {
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void PtxQueue::abort(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
}

bool PtxQueue::failed() {
  std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

void PtxQueue::perform(Launch& command) {
  if (failed()) return;
  const gpu::Launch& launch = command.launch;
  const auto& pipeline = static_cast<const PtxPipeline&>(*launch.pipeline);
  const CUfunction function = pipeline.function(launch.threads);
  Arguments arguments{};
  std::set<const PtxBuffer*> buffers;
  for (int i = 0; i < launch.view_count; ++i) {
    const View& view = launch.views[i];
    if (!view) continue;
    const auto* buffer = static_cast<const PtxBuffer*>(view.buffer);
    arguments.buffer[i] = buffer->address() + view.offset;
    buffers.insert(buffer);
  }
  const std::string name = launch.label;
  if (!command.constants.empty()) {
    arguments.buffer[launch.view_count] = constants_;
    driver_.check(driver_.cuMemcpyHtoDAsync(constants_, command.constants.data(),
                                            command.constants.size(), stream_),
                  "the arguments of " + name);
  }
  const auto& [x, y, z] = launch.groups;
  arguments.threads_per_grid[0] = x * launch.threads;
  arguments.threads_per_grid[1] = y;
  arguments.threads_per_grid[2] = z;
  void* parameters[] = {&arguments};
  const auto shared = static_cast<unsigned>((launch.threadgroup_bytes + 15) / 16 * 16);
  const auto run = [&] {
    driver_.check(driver_.cuLaunchKernel(function, x, y, z, launch.threads, 1, 1, shared, stream_,
                                         parameters, nullptr),
                  "the GPU does not start " + name);
  };
  in_flight_.push_back(std::move(command));
  if (times_ == nullptr) {
    run();
    return;
  }
  for (const PtxBuffer* b : buffers) {
    driver_.check(driver_.cuMemcpyHtoDAsync(b->address(), b->data(), b->size(), stream_),
                  "a buffer of " + name);
  }
  run();
  for (const PtxBuffer* b : buffers) {
    driver_.check(driver_.cuMemcpyDtoHAsync(b->data(), b->address(), b->size(), stream_),
                  "a buffer of " + name);
  }
  finish();
  times_->measure(name, stream_, run);
}

void PtxQueue::perform(const Wait& wait) {
  Stopwatch watch;
  wait.event->wait(wait.value);
  uint64_t stood = 0;
  watch.lap(stood);
  stalled_.fetch_add(stood);
}

void PtxQueue::perform(const Signal& signal) {
  try {
    finish();
  } catch (...) {
    abort(std::current_exception());
  }
  signal.event->signal(signal.value);
}

// Waits for the GPU. An error may be that of any launch since the last time.
void PtxQueue::finish() {
  if (in_flight_.empty()) return;
  const auto launches = std::exchange(in_flight_, {});
  const CUresult result = driver_.cuStreamSynchronize(stream_);
  if (result == 0) return;
  std::string kernels;
  const size_t first = launches.size() > kLongLog ? launches.size() - kLongLog : 0;
  for (size_t i = first; i < launches.size(); ++i) {
    if (i > first) kernels += ", ";
    kernels += launches[i].launch.label;
  }
  throw DeviceError("the GPU failed while it ran " + kernels + ": " + driver_.describe(result));
}

void PtxQueue::work() {
  try {
    driver_.enter();
  } catch (...) {
    abort(std::current_exception());
  }
  for (;;) {
    std::unique_lock lock(mutex_);
    work_ready_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Command command = std::move(queue_.front());
    queue_.pop_front();
    const bool last = queue_.empty();
    running_ = true;
    lock.unlock();
    try {
      std::visit([&](auto& what) { perform(what); }, command);
      if (last) finish();
    } catch (...) {
      abort(std::current_exception());
    }
    lock.lock();
    running_ = false;
    if (queue_.empty()) idle_.notify_all();
  }
}

}  // namespace mference::ptx
