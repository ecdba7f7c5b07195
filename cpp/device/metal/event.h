// Events that hosts and command buffers signal and wait for.
#pragma once

#include "device/device.h"
#include "device/metal/objects.h"

namespace mference::metal {

class MetalEvent final : public Event {
 public:
  explicit MetalEvent(id<MTLDevice> device);
  void signal(uint64_t value) override;
  // Raises DeviceError if the GPU does not get there within a minute: it never takes so long.
  void wait(uint64_t value) override;
  uint64_t value() const override { return [event_.get() signaledValue]; }
  id<MTLSharedEvent> get() const { return event_.get(); }

 private:
  Ref<id<MTLSharedEvent>> event_;
};

// Raises an event to a value, unless it is there already.
void raise_event(id<MTLSharedEvent> event, uint64_t value);

}  // namespace mference::metal
