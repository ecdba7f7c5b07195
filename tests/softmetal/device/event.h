#pragma once

#import <Metal/Metal.h>

namespace softmetal {
struct EventState;
}  // namespace softmetal

@interface SoftmetalEvent : NSObject <MTLSharedEvent> {
  id<MTLDevice> device_;
  NSString* label_;
  softmetal::EventState* state_;
}
- (instancetype)initWithDevice:(id<MTLDevice>)device;
@end
