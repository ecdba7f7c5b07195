#include "device/metal/residency.h"

namespace mference::metal {

Residency::Residency(id<MTLDevice> device) {
  if (@available(macOS 15, *)) {
    const auto descriptor =
        Ref<MTLResidencySetDescriptor*>::adopt([[MTLResidencySetDescriptor alloc] init]);
    // Without a set everything works, only slower: an error is none to report.
    set_ = Ref<id>::adopt([device newResidencySetWithDescriptor:descriptor.get() error:nullptr]);
  }
}

void Residency::attach(id<MTLCommandQueue> queue) {
  if (@available(macOS 15, *)) {
    if (set_) [queue addResidencySet:set_.get()];
  }
}

void Residency::add(id<MTLBuffer> buffer) {
  if (@available(macOS 15, *)) {
    const std::lock_guard lock(mutex_);
    [set_.get() addAllocation:buffer];
    [set_.get() commit];
  }
}

void Residency::remove(id<MTLBuffer> buffer) {
  if (@available(macOS 15, *)) {
    const std::lock_guard lock(mutex_);
    [set_.get() removeAllocation:buffer];
    [set_.get() commit];
  }
}

}  // namespace mference::metal
