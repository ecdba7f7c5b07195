#pragma once

#import <Metal/Metal.h>

#include <map>
#include <memory>
#include <vector>

#include "device/module.h"
#include "device/object.h"

namespace softmetal {

struct GivenConstant {
  MTLDataType type;
  u64 bits;
};
using GivenConstants = std::map<NSUInteger, GivenConstant>;

// What a pipeline is made of.
struct PipelineState {
  std::shared_ptr<const LoadedModule> module;
  const LoadedKernel* kernel = nullptr;
  std::vector<ConstantValue> constants;
  std::vector<bool> enabled;  // for each argument of the kernel
};

}  // namespace softmetal

@interface SoftmetalLibrary : SoftmetalObject <MTLLibrary> {
  std::shared_ptr<const softmetal::LoadedModule>* module_;
}
- (instancetype)initWithDevice:(id<MTLDevice>)device
                        module:(std::shared_ptr<const softmetal::LoadedModule>)module;
@end

@interface SoftmetalFunction : SoftmetalObject <MTLFunction> {
  softmetal::PipelineState* state_;
}
- (const softmetal::PipelineState&)state;
@end

@interface SoftmetalPipeline : SoftmetalObject <MTLComputePipelineState> {
  softmetal::PipelineState* state_;
}
- (instancetype)initWithDevice:(id<MTLDevice>)device
                         state:(const softmetal::PipelineState&)state
                         label:(NSString*)label;
- (const softmetal::PipelineState&)state;
@end
