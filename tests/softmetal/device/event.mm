#include "device/event.h"

#include <Block.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "device/violation.h"

namespace softmetal {

struct Notification {
  uint64_t value;
  MTLSharedEventListener* listener;
  MTLSharedEventNotificationBlock block;
};

struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t value = 0;
  std::vector<Notification> notifications;
};

}  // namespace softmetal

using softmetal::Notification;

namespace {

void notify(SoftmetalEvent* event, const Notification& notification) {
  const MTLSharedEventNotificationBlock block = notification.block;
  const uint64_t value = notification.value;
  MTLSharedEventListener* listener = notification.listener;
  [event retain];
  dispatch_async([listener dispatchQueue], ^{
    block(event, value);
    Block_release(block);
    [event release];
    [listener release];
  });
}

}  // namespace

@implementation SoftmetalEvent
- (instancetype)initWithDevice:(id<MTLDevice>)device {
  device_ = device;
  state_ = new softmetal::EventState;
  return self;
}
- (void)dealloc {
  for (const Notification& notification : state_->notifications) {
    Block_release(notification.block);
    [notification.listener release];
  }
  delete state_;
  [super dealloc];
}
- (uint64_t)signaledValue {
  const std::lock_guard lock(state_->mutex);
  return state_->value;
}
- (void)setSignaledValue:(uint64_t)value {
  std::vector<Notification> due;
  {
    const std::lock_guard lock(state_->mutex);
    if (value < state_->value) {
      softmetal::violation("-[MTLSharedEvent setSignaledValue:]: from %llu back to %llu",
                           static_cast<unsigned long long>(state_->value),
                           static_cast<unsigned long long>(value));
    }
    state_->value = value;
    std::erase_if(state_->notifications, [&](const Notification& notification) {
      if (notification.value > value) return false;
      due.push_back(notification);
      return true;
    });
    // Under the lock: a waiter that has seen the value may release the event.
    state_->changed.notify_all();
  }
  for (const Notification& notification : due) notify(self, notification);
}
- (void)notifyListener:(MTLSharedEventListener*)listener
               atValue:(uint64_t)value
                 block:(MTLSharedEventNotificationBlock)block {
  const Notification notification{value, [listener retain], Block_copy(block)};
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->value < value) {
      state_->notifications.push_back(notification);
      return;
    }
  }
  notify(self, notification);
}
- (BOOL)waitUntilSignaledValue:(uint64_t)value timeoutMS:(uint64_t)milliseconds {
  std::unique_lock lock(state_->mutex);
  const auto reached = [&] { return state_->value >= value; };
  // Beyond a day is for ever, and would overflow the clock.
  const auto limit = std::chrono::milliseconds(std::min<uint64_t>(milliseconds, 86'400'000));
  return state_->changed.wait_until(lock, std::chrono::system_clock::now() + limit, reached);
}
@end

@implementation MTLSharedEventListener
- (instancetype)init {
  return [self initWithDispatchQueue:dispatch_queue_create("shared event", DISPATCH_QUEUE_SERIAL)];
}
- (instancetype)initWithDispatchQueue:(dispatch_queue_t)dispatchQueue {
  queue_ = dispatchQueue;
  dispatch_retain(queue_);
  return self;
}
- (void)dealloc {
  dispatch_release(queue_);
  [super dealloc];
}
- (dispatch_queue_t)dispatchQueue {
  return queue_;
}
@end
