#pragma once

#import <Metal/Metal.h>

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
}
- (instancetype)initWithDevice:(id<MTLDevice>)device label:(NSString*)label;
@end
