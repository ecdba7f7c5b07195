#include "device/command_buffer.h"

#include <Block.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "device/device.h"
#include "device/encoder.h"
#include "device/queue.h"
#include "device/serial_thread.h"
#include "device/settings.h"
#include "device/violation.h"

using softmetal::get;
using softmetal::Ref;
using softmetal::Setting;
using softmetal::violation;

namespace softmetal {

struct CommandBufferState {
  std::mutex mutex;
  std::condition_variable changed;
  MTLCommandBufferStatus status = MTLCommandBufferStatusNotEnqueued;
  std::vector<Command> commands;
  std::vector<MTLCommandBufferHandler> scheduled;
  std::vector<MTLCommandBufferHandler> completed;
  Ref<NSError*> error;
  double start = 0;
  double end = 0;
  bool encoding = false;
  bool fails = false;  // because a test asked for it
};

}  // namespace softmetal

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Completed handlers run here, one after another: later than the waiters go on.
softmetal::SerialThread& handler_thread() {
  static auto* thread = new softmetal::SerialThread;
  return *thread;
}

}  // namespace

@implementation SoftmetalCommandBuffer
- (instancetype)initWithQueue:(id<MTLCommandQueue>)queue retaining:(BOOL)retaining {
  device_ = [queue device];
  queue_ = [queue retain];
  retaining_ = retaining;
  state_ = new softmetal::CommandBufferState;
  return self;
}
- (void)dealloc {
  for (const auto* handlers : {&state_->scheduled, &state_->completed}) {
    for (MTLCommandBufferHandler handler : *handlers) Block_release(handler);
  }
  delete state_;
  [queue_ release];
  [super dealloc];
}
- (id<MTLCommandQueue>)commandQueue {
  return queue_;
}
- (BOOL)retainedReferences {
  return retaining_;
}
- (CFTimeInterval)kernelStartTime {
  return [self GPUStartTime];
}
- (CFTimeInterval)kernelEndTime {
  return [self GPUEndTime];
}
- (CFTimeInterval)GPUStartTime {
  const std::lock_guard lock(state_->mutex);
  return state_->start;
}
- (CFTimeInterval)GPUEndTime {
  const std::lock_guard lock(state_->mutex);
  return state_->end;
}
- (MTLCommandBufferStatus)status {
  const std::lock_guard lock(state_->mutex);
  return state_->status;
}
- (NSError*)error {
  const std::lock_guard lock(state_->mutex);
  return state_->error.get();
}

// Aborts unless commands may still be encoded.
- (void)requireOpen:(const char*)method {
  const std::lock_guard lock(state_->mutex);
  if (state_->status >= MTLCommandBufferStatusCommitted) {
    violation("-[MTLCommandBuffer %s]: the command buffer was committed already", method);
  }
  if (state_->encoding) {
    violation("-[MTLCommandBuffer %s]: an encoder of the command buffer is still open", method);
  }
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [self computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:
    (MTLDispatchType)dispatchType {
  [self requireOpen:"computeCommandEncoder"];
  state_->encoding = true;
  return [[[SoftmetalEncoder alloc] initWithCommandBuffer:self type:dispatchType] autorelease];
}
- (void)append:(softmetal::Command)command {
  state_->commands.push_back(std::move(command));
}
- (void)encoderEnded {
  const std::lock_guard lock(state_->mutex);
  state_->encoding = false;
}
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [self requireOpen:"encodeWaitForEvent:value:"];
  [self append:softmetal::EventCommand{
                   Ref<id<MTLSharedEvent>>::share(static_cast<id<MTLSharedEvent>>(event)), value,
                   false}];
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [self requireOpen:"encodeSignalEvent:value:"];
  [self append:softmetal::EventCommand{
                   Ref<id<MTLSharedEvent>>::share(static_cast<id<MTLSharedEvent>>(event)), value,
                   true}];
}
- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  [self requireOpen:"addScheduledHandler:"];
  state_->scheduled.push_back(Block_copy(block));
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  const std::lock_guard lock(state_->mutex);
  if (state_->status >= MTLCommandBufferStatusCommitted) {
    violation("-[MTLCommandBuffer addCompletedHandler:]: the command buffer was committed already");
  }
  state_->completed.push_back(Block_copy(block));
}
- (void)pushDebugGroup:(NSString*)string {
}
- (void)popDebugGroup {
}
- (void)useResidencySet:(id<MTLResidencySet>)residencySet {
}

- (void)enqueue {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->status != MTLCommandBufferStatusNotEnqueued) return;
    state_->status = MTLCommandBufferStatusEnqueued;
  }
  [queue_ enqueue:self];
}
- (void)commit {
  [self requireOpen:"commit"];
  [self enqueue];
  const std::lock_guard lock(state_->mutex);
  state_->status = MTLCommandBufferStatusCommitted;
  state_->fails = softmetal::count_down(Setting::kFailCommandBuffer);
  state_->changed.notify_all();
}
- (void)waitUntilScheduled {
  [self waitUntil:MTLCommandBufferStatusScheduled method:"waitUntilScheduled"];
}
- (void)waitUntilCompleted {
  [self waitUntil:MTLCommandBufferStatusCompleted method:"waitUntilCompleted"];
}
- (void)waitUntil:(MTLCommandBufferStatus)status method:(const char*)method {
  std::unique_lock lock(state_->mutex);
  if (state_->status < MTLCommandBufferStatusCommitted) {
    violation("-[MTLCommandBuffer %s]: the command buffer was not committed", method);
  }
  state_->changed.wait(lock, [&] { return state_->status >= status; });
}

- (void)run {
  {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->status >= MTLCommandBufferStatusCommitted; });
    state_->status = MTLCommandBufferStatusScheduled;
    state_->start = now();
    state_->changed.notify_all();
  }
  for (MTLCommandBufferHandler handler : state_->scheduled) handler(self);
  NSError* error = state_->fails ? softmetal::make_error(MTLCommandBufferErrorDomain,
                                                         MTLCommandBufferErrorInternal,
                                                         "a failure that was asked for")
                                 : [self runCommands];
  {
    const std::lock_guard lock(state_->mutex);
    state_->error = Ref<NSError*>::share(error);
    state_->status = error == nil ? MTLCommandBufferStatusCompleted : MTLCommandBufferStatusError;
    state_->end = now();
    state_->commands.clear();
    state_->changed.notify_all();
  }
  [self retain];
  handler_thread().post([self] {
    const int64_t delay = get(Setting::kDelayCompletionUs);
    if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
    for (MTLCommandBufferHandler handler : state_->completed) handler(self);
    [self release];
  });
}
// The error of the first command that failed; those after it do not run.
- (NSError*)runCommands {
  for (const softmetal::Command& command : state_->commands) {
    if (const auto* kernel = std::get_if<softmetal::KernelCommand>(&command)) {
      try {
        softmetal::run_kernel(*kernel);
      } catch (const softmetal::KernelError& failure) {
        return softmetal::make_error(MTLCommandBufferErrorDomain, MTLCommandBufferErrorPageFault,
                                     failure.what());
      }
      continue;
    }
    const auto& event = std::get<softmetal::EventCommand>(command);
    if (event.signals) {
      [event.event.get() setSignaledValue:event.value];
      continue;
    }
    const auto limit = static_cast<uint64_t>(get(Setting::kEventTimeoutMs));
    if (![event.event.get() waitUntilSignaledValue:event.value timeoutMS:limit]) {
      return softmetal::make_error(
          MTLCommandBufferErrorDomain, MTLCommandBufferErrorTimeout,
          "an event did not reach " + std::to_string(event.value) + " in time");
    }
  }
  return nil;
}
@end
