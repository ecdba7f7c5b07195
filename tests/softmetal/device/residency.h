#pragma once

#import <Metal/Metal.h>

#include <mutex>
#include <vector>

#include "device/object.h"
#include "device/ref.h"

namespace softmetal {
using Allocations = std::vector<Ref<id<MTLAllocation>>>;
}  // namespace softmetal

@interface SoftmetalResidencySet : SoftmetalObject <MTLResidencySet> {
  softmetal::Allocations* pending_;
  softmetal::Allocations* committed_;
  std::mutex* mutex_;
}
- (instancetype)initWithDevice:(id<MTLDevice>)device label:(NSString*)label;
// Aborts if the memory of a buffer in the set is gone.
- (void)checkMemory;
@end
