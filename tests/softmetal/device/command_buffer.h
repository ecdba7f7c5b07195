#pragma once

#import <Metal/Metal.h>

#include "device/commands.h"
#include "device/object.h"

@class SoftmetalQueue;

namespace softmetal {
struct CommandBufferState;
}  // namespace softmetal

@interface SoftmetalCommandBuffer : SoftmetalObject <MTLCommandBuffer> {
  SoftmetalQueue* queue_;
  BOOL retaining_;
  softmetal::CommandBufferState* state_;
}
- (instancetype)initWithQueue:(id<MTLCommandQueue>)queue retaining:(BOOL)retaining;
// For the encoder: adds to the commands, and ends.
- (void)append:(softmetal::Command)command;
- (void)encoderEnded;
// For the queue's thread: waits for the commit, and runs the commands.
- (void)run;
@end
