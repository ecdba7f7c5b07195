#pragma once

#import <Metal/Metal.h>

namespace softmetal {
class SerialThread;
}  // namespace softmetal

@class SoftmetalCommandBuffer;

// One thread runs its command buffers in the order in which they were enqueued.
@interface SoftmetalQueue : NSObject <MTLCommandQueue> {
  id<MTLDevice> device_;
  NSString* label_;
  softmetal::SerialThread* thread_;
}
- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (void)enqueue:(SoftmetalCommandBuffer*)buffer;
@end
