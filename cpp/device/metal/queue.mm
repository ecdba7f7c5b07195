#include "device/metal/queue.h"

#include <string>

#include "base/errors.h"
#include "device/metal/buffer.h"
#include "device/metal/event.h"
#include "device/metal/library.h"

namespace mference::metal {

MetalQueue::MetalQueue(id<MTLDevice> device)
    : queue_(Ref<id<MTLCommandQueue>>::adopt([device newCommandQueue])) {
  if (!queue_) throw DeviceError("Metal gave no command queue");
}

MetalQueue::~MetalQueue() {
  const Pool pool;
  // An encoder must be ended before it is released; what was not committed never runs.
  end_encoder();
  std::unique_lock lock(state_->mutex);
  state_->idle.wait(lock, [&] { return state_->in_flight == 0; });
}

bool MetalQueue::failed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->error != nullptr;
}

id<MTLCommandBuffer> MetalQueue::commands() {
  if (!commands_) {
    commands_ = Ref<id<MTLCommandBuffer>>::share([queue_.get() commandBuffer]);
    if (!commands_) throw DeviceError("Metal gave no command buffer");
    labels_ = std::make_shared<Labels>();
  }
  return commands_.get();
}

id<MTLComputeCommandEncoder> MetalQueue::encoder() {
  if (!encoder_) {
    // Serial dispatch: each launch sees what the ones before it wrote.
    encoder_ = Ref<id<MTLComputeCommandEncoder>>::share([commands() computeCommandEncoder]);
    if (!encoder_) throw DeviceError("Metal gave no compute encoder");
  }
  return encoder_.get();
}

void MetalQueue::end_encoder() {
  if (!encoder_) return;
  [encoder_.get() endEncoding];
  encoder_ = {};
}

void MetalQueue::launch(const gpu::Launch& launch) {
  if (failed()) return;
  const Pool pool;
  // Looked up before anything is encoded, so that an error leaves no half of a launch.
  std::array<MetalBuffer::Place, gpu::Launch::kMaxViews> places{};
  for (int i = 0; i < launch.view_count; ++i) {
    const View& view = launch.views[i];
    if (view) places[i] = static_cast<const MetalBuffer&>(*view.buffer).place(view);
  }
  const auto& pipeline = static_cast<const MetalPipeline&>(*launch.pipeline);
  // Registers bound it, so it is each pipeline's own. A larger dispatch is dropped without an error.
  const NSUInteger most = [pipeline.get() maxTotalThreadsPerThreadgroup];
  if (launch.threads > most) {
    throw DeviceError(std::string("kernel ") + launch.label + " needs " +
                      std::to_string(launch.threads) +
                      " threads in a threadgroup, and this GPU runs " + std::to_string(most) +
                      "; choose device cpu");
  }
  id<MTLComputeCommandEncoder> encoder = this->encoder();
  [encoder setComputePipelineState:pipeline.get()];
  for (int i = 0; i < launch.view_count; ++i) {
    if (places[i].buffer == nil) continue;
    [encoder setBuffer:places[i].buffer offset:places[i].offset atIndex:static_cast<NSUInteger>(i)];
  }
  if (launch.constants_size > 0) {
    [encoder setBytes:launch.constants
               length:launch.constants_size
              atIndex:static_cast<NSUInteger>(launch.view_count)];
  }
  if (launch.threadgroup_bytes > 0) {
    // Metal takes lengths in units of 16 bytes.
    [encoder setThreadgroupMemoryLength:(launch.threadgroup_bytes + 15) / 16 * 16 atIndex:0];
  }
  const auto& [x, y, z] = launch.groups;
  [encoder dispatchThreadgroups:MTLSizeMake(x, y, z)
          threadsPerThreadgroup:MTLSizeMake(launch.threads, 1, 1)];
  labels_->push_back(launch.label);
}

void MetalQueue::wait(Event& event, uint64_t value) {
  const Pool pool;
  end_encoder();
  [commands() encodeWaitForEvent:static_cast<MetalEvent&>(event).get() value:value];
}

void MetalQueue::signal(Event& event, uint64_t value) {
  const Pool pool;
  end_encoder();
  id<MTLSharedEvent> shared = static_cast<MetalEvent&>(event).get();
  [commands() encodeSignalEvent:shared value:value];
  const std::lock_guard lock(state_->mutex);
  for (auto& [known, last] : state_->signals) {
    if (known.get() == shared) {
      last = value;
      return;
    }
  }
  state_->signals.emplace_back(Ref<id<MTLSharedEvent>>::share(shared), value);
}

void MetalQueue::commit() {
  if (!commands_) return;
  const Pool pool;
  end_encoder();
  {
    const std::lock_guard lock(state_->mutex);
    ++state_->in_flight;
  }
  const auto state = state_;
  const auto labels = labels_;
  [commands_.get() addCompletedHandler:^(id<MTLCommandBuffer> buffer) {
    complete(*state, *labels, buffer);
  }];
  [commands_.get() commit];
  commands_ = {};
  labels_ = nullptr;
}

void MetalQueue::complete(State& state, const Labels& labels, id<MTLCommandBuffer> buffer) {
  const Pool pool;
  if ([buffer status] == MTLCommandBufferStatusError) {
    std::string kernels;
    for (const char* label : labels) kernels += (kernels.empty() ? "" : ", ") + std::string(label);
    auto error = std::make_exception_ptr(DeviceError(
        "the GPU failed while it ran " + (kernels.empty() ? std::string("no kernel") : kernels) +
        ": " + reason([buffer error])));
    const std::lock_guard lock(state.mutex);
    // Handed on, not shared: whoever hears of it may free it.
    if (!state.error) state.error = std::move(error);
    // A buffer that failed may not have signalled, and somebody may be waiting. To the last value:
    // buffers behind this one may have signalled theirs, and an event never goes back.
    for (const auto& [event, value] : state.signals) raise_event(event.get(), value);
  }
  {
    const std::lock_guard lock(state.mutex);
    --state.in_flight;
  }
  state.idle.notify_all();
}

void MetalQueue::synchronize() {
  commit();
  {
    std::unique_lock lock(state_->mutex);
    state_->idle.wait(lock, [&] { return state_->in_flight == 0; });
  }
  check();
}

void MetalQueue::check() {
  const std::lock_guard lock(state_->mutex);
  if (state_->error) std::rethrow_exception(std::exchange(state_->error, nullptr));
}

void MetalQueue::abort(std::exception_ptr error) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->error) state_->error = std::move(error);
}

}  // namespace mference::metal
