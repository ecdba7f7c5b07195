#pragma once

#import <Metal/Metal.h>

#include "device/object.h"

namespace softmetal {
struct EventState;
}  // namespace softmetal

@interface SoftmetalEvent : SoftmetalObject <MTLSharedEvent> {
  softmetal::EventState* state_;
}
- (instancetype)initWithDevice:(id<MTLDevice>)device;
@end
