#include "device/encoder.h"

#include <algorithm>
#include <string>

#include "device/command_buffer.h"
#include "device/commands.h"
#include "device/violation.h"

using softmetal::Binding;
using softmetal::kMaxBuffers;
using softmetal::Ref;
using softmetal::u32;
using softmetal::violation;

namespace softmetal {

struct EncoderState {
  KernelCommand next;
  int groups = 0;  // debug groups that are open
  bool ended = false;
};

}  // namespace softmetal

namespace {

constexpr NSUInteger kMaxBytes = 4096;

softmetal::Vector3 vector(MTLSize size) {
  return {static_cast<u32>(size.width), static_cast<u32>(size.height),
          static_cast<u32>(size.depth)};
}

}  // namespace

@implementation SoftmetalEncoder
- (instancetype)initWithCommandBuffer:(SoftmetalCommandBuffer*)buffer type:(MTLDispatchType)type {
  device_ = [buffer device];
  buffer_ = [buffer retain];
  type_ = type;
  state_ = new softmetal::EncoderState;
  return self;
}
- (void)dealloc {
  if (!state_->ended) {
    violation("an MTLComputeCommandEncoder was released without endEncoding");
  }
  delete state_;
  [buffer_ release];
  [super dealloc];
}
- (MTLDispatchType)dispatchType {
  return type_;
}
- (const char*)kernelName {
  return state_->next.pipeline == nil ? "no kernel yet"
                                      : [state_->next.pipeline state].kernel->kernel->name;
}
- (void)require:(BOOL)condition method:(const char*)method what:(const std::string&)what {
  if (condition) return;
  violation("-[MTLComputeCommandEncoder %s]: %s (%s)", method, what.c_str(), [self kernelName]);
}
- (void)requireOpen:(const char*)method {
  [self require:!state_->ended method:method what:"the encoder has ended"];
}

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  [self requireOpen:"setComputePipelineState:"];
  [self require:state != nil method:"setComputePipelineState:" what:"the pipeline is nil"];
  state_->next.pipeline = static_cast<SoftmetalPipeline*>(state);
  if ([buffer_ retainedReferences]) {
    state_->next.retained = Ref<SoftmetalPipeline*>::share(state_->next.pipeline);
  }
}
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  [self requireOpen:"setBytes:length:atIndex:"];
  [self require:length > 0 && length <= kMaxBytes
         method:"setBytes:length:atIndex:"
           what:std::to_string(length) + " bytes for buffer(" + std::to_string(index) +
                "); setBytes takes 1 to 4096"];
  [self requireIndex:index method:"setBytes:length:atIndex:"];
  const auto* first = static_cast<const std::byte*>(bytes);
  Binding binding;
  binding.bytes = std::make_shared<std::vector<std::byte>>(first, first + length);
  state_->next.bindings[index] = std::move(binding);
}
- (void)requireIndex:(NSUInteger)index method:(const char*)method {
  [self require:index < kMaxBuffers
         method:method
           what:"index " + std::to_string(index) + " is past the last, 30"];
}
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  [self requireOpen:"setBuffer:offset:atIndex:"];
  [self requireIndex:index method:"setBuffer:offset:atIndex:"];
  Binding binding;
  if (buffer != nil) {
    [self require:offset < [buffer length]
           method:"setBuffer:offset:atIndex:"
             what:"offset " + std::to_string(offset) + " of a buffer of " +
                  std::to_string([buffer length]) + " bytes, at index " + std::to_string(index)];
    binding.buffer = buffer;
    binding.offset = offset;
    if ([buffer_ retainedReferences]) binding.retained = Ref<id<MTLBuffer>>::share(buffer);
  }
  state_->next.bindings[index] = std::move(binding);
}
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
  [self requireIndex:index method:"setBufferOffset:atIndex:"];
  [self require:state_->next.bindings[index].buffer != nil
         method:"setBufferOffset:atIndex:"
           what:"no buffer is bound to index " + std::to_string(index)];
  [self setBuffer:state_->next.bindings[index].buffer offset:offset atIndex:index];
}
- (void)setBuffers:(const id<MTLBuffer>[])buffers
           offsets:(const NSUInteger[])offsets
         withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) {
    [self setBuffer:buffers[i] offset:offsets[i] atIndex:range.location + i];
  }
}
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
  const char* method = "setThreadgroupMemoryLength:atIndex:";
  [self requireOpen:method];
  [self requireIndex:index method:method];
  [self require:length % 16 == 0
         method:method
           what:std::to_string(length) + " bytes are not a multiple of 16"];
  [self require:length <= softmetal::kThreadgroupBytes
         method:method
           what:std::to_string(length) + " bytes are more than 32768"];
  state_->next.threadgroup_bytes[index] = static_cast<u32>(length);
}

- (void)dispatchThreadgroups:(MTLSize)threadgroupsPerGrid
       threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup {
  state_->next.threadgroups = vector(threadgroupsPerGrid);
  state_->next.threads_per_threadgroup = vector(threadsPerThreadgroup);
  const auto& [gx, gy, gz] = state_->next.threadgroups;
  const auto& [tx, ty, tz] = state_->next.threads_per_threadgroup;
  state_->next.threads_per_grid = {gx * tx, gy * ty, gz * tz};
  [self dispatch:"dispatchThreadgroups:threadsPerThreadgroup:"];
}
- (void)dispatchThreads:(MTLSize)threadsPerGrid
    threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup {
  const auto grid = vector(threadsPerGrid);
  const auto group = vector(threadsPerThreadgroup);
  const auto count = [](u32 threads, u32 per) { return per == 0 ? 0 : (threads + per - 1) / per; };
  state_->next.threadgroups = {count(grid.x, group.x), count(grid.y, group.y),
                               count(grid.z, group.z)};
  state_->next.threads_per_threadgroup = group;
  state_->next.threads_per_grid = grid;
  [self dispatch:"dispatchThreads:threadsPerThreadgroup:"];
}
- (void)dispatch:(const char*)method {
  [self requireOpen:method];
  const softmetal::KernelCommand& next = state_->next;
  [self require:next.pipeline != nil method:method what:"no pipeline is set"];
  const auto& [gx, gy, gz] = next.threadgroups;
  const auto& [tx, ty, tz] = next.threads_per_threadgroup;
  [self require:gx > 0 && gy > 0 && gz > 0 method:method what:"the grid is empty"];
  const NSUInteger threads = NSUInteger{tx} * ty * tz;
  const NSUInteger limit = [next.pipeline maxTotalThreadsPerThreadgroup];
  [self require:threads > 0 && threads <= limit
         method:method
           what:std::to_string(threads) + " threads in a threadgroup; this pipeline takes 1 to " +
                std::to_string(limit)];
  [self requireArguments:method];
  [buffer_ append:state_->next];
}
// Aborts unless everything that the kernel uses is bound as Metal wants it.
- (void)requireArguments:(const char*)method {
  const softmetal::PipelineState& state = [state_->next.pipeline state];
  const softmetal::Kernel& kernel = *state.kernel->kernel;
  u32 memory = state.kernel->static_bytes;
  for (const u32 bytes : state_->next.threadgroup_bytes) memory += bytes;
  [self require:memory <= softmetal::kThreadgroupBytes
         method:method
           what:std::to_string(memory) + " bytes of threadgroup memory are more than 32768"];
  for (u32 i = 0; i < kernel.argument_count; ++i) {
    const softmetal::Argument& argument = kernel.arguments[i];
    if (!state.enabled[i]) continue;
    const std::string index = std::to_string(argument.index);
    const std::string name = " " + std::string(argument.name);
    if (argument.kind == softmetal::ArgumentKind::kThreadgroup) {
      [self require:state_->next.threadgroup_bytes[argument.index] > 0
             method:method
               what:"threadgroup(" + index + ")" + name + " has no length"];
      continue;
    }
    const Binding& binding = state_->next.bindings[argument.index];
    const std::string what = "buffer(" + index + ")" + name;
    [self require:bool(binding) method:method what:what + " is not bound"];
    [self require:binding.buffer != nil || !argument.writable
           method:method
             what:what + " is written by the kernel, and was bound with setBytes"];
    const NSUInteger rest =
        binding.bytes != nullptr ? binding.bytes->size() : [binding.buffer length] - binding.offset;
    [self require:rest >= argument.size
           method:method
             what:what + " has " + std::to_string(rest) + " bytes, and the kernel's type has " +
                  std::to_string(argument.size)];
    [self require:binding.bytes != nullptr || binding.offset % argument.alignment == 0
           method:method
             what:what + " begins at offset " + std::to_string(binding.offset) +
                  ", which is not a multiple of " + std::to_string(argument.alignment)];
  }
}

- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage {
  [self requireOpen:"useResource:usage:"];
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  [self requireOpen:"memoryBarrierWithScope:"];
}
- (void)memoryBarrierWithResources:(const id<MTLResource>[])resources count:(NSUInteger)count {
  [self requireOpen:"memoryBarrierWithResources:count:"];
}
- (void)insertDebugSignpost:(NSString*)string {
  [self requireOpen:"insertDebugSignpost:"];
}
- (void)pushDebugGroup:(NSString*)string {
  [self requireOpen:"pushDebugGroup:"];
  ++state_->groups;
}
- (void)popDebugGroup {
  [self require:state_->groups > 0 method:"popDebugGroup" what:"no group is open"];
  --state_->groups;
}
- (void)endEncoding {
  [self requireOpen:"endEncoding"];
  [self require:state_->groups == 0 method:"endEncoding" what:"a debug group is still open"];
  state_->ended = true;
  [buffer_ encoderEnded];
}
@end
