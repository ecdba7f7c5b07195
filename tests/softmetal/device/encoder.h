#pragma once

#import <Metal/Metal.h>

#include "device/object.h"

@class SoftmetalCommandBuffer;

namespace softmetal {
struct EncoderState;
}  // namespace softmetal

@interface SoftmetalEncoder : SoftmetalObject <MTLComputeCommandEncoder> {
  SoftmetalCommandBuffer* buffer_;
  MTLDispatchType type_;
  softmetal::EncoderState* state_;
}
- (instancetype)initWithCommandBuffer:(SoftmetalCommandBuffer*)buffer type:(MTLDispatchType)type;
@end
