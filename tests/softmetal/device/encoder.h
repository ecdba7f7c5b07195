#pragma once

#import <Metal/Metal.h>

@class SoftmetalCommandBuffer;

namespace softmetal {
struct EncoderState;
}  // namespace softmetal

@interface SoftmetalEncoder : NSObject <MTLComputeCommandEncoder> {
  SoftmetalCommandBuffer* buffer_;
  MTLDispatchType type_;
  NSString* label_;
  softmetal::EncoderState* state_;
}
- (instancetype)initWithCommandBuffer:(SoftmetalCommandBuffer*)buffer type:(MTLDispatchType)type;
@end
