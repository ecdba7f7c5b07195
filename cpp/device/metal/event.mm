#include "device/metal/event.h"

#include <mutex>

#include "base/errors.h"

namespace mference::metal {

namespace {
constexpr int kSpins = 2000;
constexpr uint64_t kTimeoutMs = 60'000;
}  // namespace

MetalEvent::MetalEvent(id<MTLDevice> device)
    : event_(Ref<id<MTLSharedEvent>>::adopt([device newSharedEvent])) {
  if (!event_) throw DeviceError("Metal gave no shared event");
}

void MetalEvent::signal(uint64_t value) {
  raise_event(event_.get(), value);
}

void MetalEvent::wait(uint64_t value) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if ([event_.get() signaledValue] >= value) return;
  }
  if (![event_.get() waitUntilSignaledValue:value timeoutMS:kTimeoutMs]) {
    throw DeviceError("the GPU, or a read that it waits for, did not end within 60 seconds");
  }
}

void raise_event(id<MTLSharedEvent> event, uint64_t value) {
  // Reading and setting are two steps, and hosts on several threads may be here.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if ([event signaledValue] < value) [event setSignaledValue:value];
}

}  // namespace mference::metal
