// A Metal command queue, one command buffer for each commit.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/gpu/gpu.h"
#include "device/metal/objects.h"

namespace mference::metal {

class MetalQueue final : public gpu::Queue {
 public:
  explicit MetalQueue(id<MTLDevice> device);
  ~MetalQueue() override;

  id<MTLCommandQueue> get() const { return queue_.get(); }

  void launch(const gpu::Launch& launch) override;
  void wait(Event& event, uint64_t value) override;
  void signal(Event& event, uint64_t value) override;
  void commit() override;
  void synchronize() override;
  void check() override;
  void abort(std::exception_ptr error) override;
  uint64_t stalled_nanoseconds() const override { return 0; }

 private:
  using Labels = std::vector<const char*>;
  // What completion handlers, which Metal calls on threads of its own, share with the queue.
  struct State {
    std::mutex mutex;
    std::condition_variable idle;
    int in_flight = 0;
    std::exception_ptr error;
    std::vector<std::pair<Ref<id<MTLSharedEvent>>, uint64_t>> signals;  // the last of each event
  };

  static void complete(State& state, const Labels& labels, id<MTLCommandBuffer> buffer);
  bool failed() const;
  id<MTLCommandBuffer> commands();
  id<MTLComputeCommandEncoder> encoder();
  void end_encoder();

  Ref<id<MTLCommandQueue>> queue_;
  Ref<id<MTLCommandBuffer>> commands_;
  Ref<id<MTLComputeCommandEncoder>> encoder_;
  std::shared_ptr<Labels> labels_;  // of the kernels in commands_
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace mference::metal
