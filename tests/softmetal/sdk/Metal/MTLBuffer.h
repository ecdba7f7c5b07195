#pragma once

#include <Metal/MTLResource.h>

@protocol MTLBuffer <MTLResource>
@property(readonly) NSUInteger length;
- (void*)contents;
@property(readonly) MTLGPUAddress gpuAddress;
@end
