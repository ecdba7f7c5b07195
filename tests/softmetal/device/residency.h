#pragma once

#import <Metal/Metal.h>

#include <mutex>
#include <vector>

#include "device/ref.h"

namespace softmetal {
using Allocations = std::vector<Ref<id<MTLAllocation>>>;
}  // namespace softmetal

@interface SoftmetalResidencySet : NSObject <MTLResidencySet> {
  id<MTLDevice> device_;
  NSString* label_;
  softmetal::Allocations* pending_;
  softmetal::Allocations* committed_;
  std::mutex* mutex_;
}
- (instancetype)initWithDevice:(id<MTLDevice>)device label:(NSString*)label;
// Aborts if the memory of a buffer in the set is gone.
- (void)checkMemory;
@end
