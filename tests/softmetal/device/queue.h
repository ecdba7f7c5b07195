#pragma once

#import <Metal/Metal.h>

#include <vector>

#include "device/object.h"
#include "device/ref.h"
#include "device/residency.h"

namespace softmetal {
class SerialThread;
using ResidencySets = std::vector<Ref<SoftmetalResidencySet*>>;
}  // namespace softmetal

@class SoftmetalCommandBuffer;

// One thread runs its command buffers in the order in which they were enqueued.
@interface SoftmetalQueue : SoftmetalObject <MTLCommandQueue> {
  softmetal::SerialThread* thread_;
  softmetal::ResidencySets* sets_;
}
- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (void)enqueue:(SoftmetalCommandBuffer*)buffer;
@end
