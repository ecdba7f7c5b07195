#include <span>
#include <utility>
#include <variant>

#include "device/check.h"
#include "device/gpu/context.h"

namespace mference::gpu {

namespace {

class GpuStream final : public Stream {
 public:
  explicit GpuStream(std::shared_ptr<Gpu> gpu)
      : gpu_(std::move(gpu)), queue_(gpu_->make_queue()), context_(*gpu_, *queue_) {}
  // The queue's end waits for its launches, which read the context's memory.
  ~GpuStream() override { queue_.reset(); }

  // What does not fit fails the stream, as it would while running.
  void encode(const Operation& operation) override {
    try {
      std::visit(
          [&](const auto& op) {
            mference::check(op);
            gpu::encode(op, context_);
          },
          operation);
    } catch (...) {
      queue_->abort(std::current_exception());
    }
  }
  void wait(Event& event, uint64_t value) override { queue_->wait(event, value); }
  void signal(Event& event, uint64_t value) override { queue_->signal(event, value); }
  void commit() override { queue_->commit(); }
  void synchronize() override {
    try {
      queue_->synchronize();
    } catch (...) {
      context_.take_fault();
      throw;
    }
    check();
  }
  void check() override {
    if (const std::exception_ptr fault = context_.take_fault()) queue_->abort(fault);
    queue_->check();
  }
  void abort(std::exception_ptr error) override { queue_->abort(std::move(error)); }
  uint64_t stalled_nanoseconds() const override { return queue_->stalled_nanoseconds(); }

 private:
  std::shared_ptr<Gpu> gpu_;
  std::unique_ptr<Queue> queue_;
  Context context_;
};

class GpuDevice final : public Device {
 public:
  explicit GpuDevice(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  std::string name() const override { return gpu_->traits().name; }
  std::unique_ptr<Buffer> allocate(size_t size, size_t alignment) override {
    return gpu_->allocate(size, alignment);
  }
  std::unique_ptr<Buffer> wrap(std::byte* data, size_t size,
                               std::span<const Range> spans) override {
    return gpu_->wrap(data, size, spans);
  }
  std::unique_ptr<Event> make_event() override { return gpu_->make_event(); }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<GpuStream>(gpu_); }

 private:
  std::shared_ptr<Gpu> gpu_;
};

}  // namespace

std::shared_ptr<Device> make_device(std::shared_ptr<Gpu> gpu) {
  return std::make_shared<GpuDevice>(std::move(gpu));
}

}  // namespace mference::gpu
