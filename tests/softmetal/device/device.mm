#include "device/device.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "device/buffer.h"
#include "device/compiler.h"
#include "device/event.h"
#include "device/library.h"
#include "device/queue.h"
#include "device/residency.h"
#include "device/settings.h"
#include "device/violation.h"

using softmetal::get;
using softmetal::Setting;

const NSErrorDomain MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";
const NSErrorDomain MTLCommandBufferErrorDomain = @"MTLCommandBufferErrorDomain";

namespace softmetal {

namespace {
std::atomic<int64_t> allocated_bytes{0};
}  // namespace

NSError* make_error(NSErrorDomain domain, NSInteger code, const std::string& text) {
  return
      [NSError errorWithDomain:domain
                          code:code
                      userInfo:[NSDictionary
                                   dictionaryWithObject:[NSString stringWithUTF8String:text.c_str()]
                                                 forKey:NSLocalizedDescriptionKey]];
}

void set_error(NSError** error, NSErrorDomain domain, NSInteger code, const std::string& text) {
  if (error != nullptr) *error = make_error(domain, code, text);
}

void count_allocated(int64_t bytes) {
  allocated_bytes += bytes;
}

int64_t allocated() {
  return allocated_bytes;
}

}  // namespace softmetal

@interface NSDictionary (Keys)
- (id)keyAtIndex:(NSUInteger)index;
@end

@interface SoftmetalDevice : NSObject <MTLDevice>
@end

@implementation SoftmetalDevice
- (NSString*)name {
  return @"Software Metal device";
}
- (uint64_t)registryID {
  return 1;
}
- (MTLSize)maxThreadsPerThreadgroup {
  return MTLSizeMake(softmetal::kMaxThreads, softmetal::kMaxThreads, softmetal::kMaxThreads);
}
- (BOOL)isLowPower {
  return NO;
}
- (BOOL)hasUnifiedMemory {
  return YES;
}
- (uint64_t)recommendedMaxWorkingSetSize {
  return [[NSProcessInfo processInfo] physicalMemory] / 4 * 3;
}
- (NSUInteger)currentAllocatedSize {
  return static_cast<NSUInteger>(softmetal::allocated());
}
- (NSUInteger)maxThreadgroupMemoryLength {
  return softmetal::kThreadgroupBytes;
}
- (NSUInteger)maxBufferLength {
  return static_cast<NSUInteger>(get(Setting::kMaxBufferLength));
}
- (BOOL)supportsFamily:(MTLGPUFamily)gpuFamily {
  const int64_t newest = get(Setting::kGpuFamily);
  if (gpuFamily >= MTLGPUFamilyApple1 && gpuFamily <= MTLGPUFamilyApple10) {
    return gpuFamily - MTLGPUFamilyApple1 < newest;
  }
  if (gpuFamily == MTLGPUFamilyMetal4) return get(Setting::kTensors) != 0;
  return newest >= 7;
}
- (id<MTLCommandQueue>)newCommandQueue {
  return [[SoftmetalQueue alloc] initWithDevice:self];
}
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)maxCommandBufferCount {
  if (maxCommandBufferCount == 0) {
    softmetal::violation("-[MTLDevice newCommandQueueWithMaxCommandBufferCount:]: 0");
  }
  return [self newCommandQueue];
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  if (length == 0) softmetal::violation("-[MTLDevice newBufferWithLength:options:]: no bytes");
  if (length > [self maxBufferLength]) return nil;
  return [[SoftmetalBuffer alloc] initWithDevice:self length:length options:options];
}
- (id<MTLBuffer>)newBufferWithBytes:(const void*)pointer
                             length:(NSUInteger)length
                            options:(MTLResourceOptions)options {
  id<MTLBuffer> buffer = [self newBufferWithLength:length options:options];
  if (buffer != nil) std::memcpy([buffer contents], pointer, length);
  return buffer;
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void*, NSUInteger))deallocator {
  const auto page = static_cast<NSUInteger>(softmetal_page_size());
  if (reinterpret_cast<NSUInteger>(pointer) % page != 0) {
    softmetal::violation(
        "-[MTLDevice newBufferWithBytesNoCopy:...]: pointer %p is not aligned to a "
        "page of %lu bytes",
        pointer, page);
  }
  if (length == 0 || length % page != 0) {
    softmetal::violation(
        "-[MTLDevice newBufferWithBytesNoCopy:...]: length %lu is not a multiple of "
        "a page of %lu bytes",
        length, page);
  }
  if ((options & 0xF0) != MTLResourceStorageModeShared) {
    softmetal::violation(
        "-[MTLDevice newBufferWithBytesNoCopy:...]: host memory is shared storage");
  }
  if (length > [self maxBufferLength]) return nil;
  return [[SoftmetalBuffer alloc] initWithDevice:self
                                         pointer:pointer
                                          length:length
                                         options:options
                                     deallocator:deallocator];
}
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError**)error {
  softmetal::CompileRequest request;
  request.source = [source UTF8String];
  if (options != nil) {
    const NSUInteger version = [options languageVersion];
    request.metal_version = static_cast<int>((version >> 16) * 100 + (version & 0xFFFF) * 10);
    NSDictionary* macros = [options preprocessorMacros];
    for (NSUInteger i = 0; i < [macros count]; ++i) {
      id name = [macros keyAtIndex:i];
      request.macros.push_back(std::string([name UTF8String]) + "=" +
                               [[[macros objectForKey:name] description] UTF8String]);
    }
  }
  try {
    if (get(Setting::kFailCompile) != 0) {
      throw softmetal::CompileFailure("program_source:1:1: error: a failure that was asked for");
    }
    return [[SoftmetalLibrary alloc]
        initWithDevice:self
                module:softmetal::LoadedModule::load(softmetal::compile(request))];
  } catch (const softmetal::CompileFailure& failure) {
    softmetal::set_error(error, MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure,
                         failure.what());
    return nil;
  }
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                                             error:(NSError**)error {
  if (computeFunction == nil) {
    softmetal::violation("-[MTLDevice newComputePipelineStateWithFunction:error:]: nil");
  }
  const auto& state = [static_cast<SoftmetalFunction*>(computeFunction) state];
  if (state.kernel->static_bytes > softmetal::kThreadgroupBytes) {
    softmetal::set_error(error, MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure,
                         std::string(state.kernel->kernel->name) + ": its threadgroup memory of " +
                             std::to_string(state.kernel->static_bytes) +
                             " bytes exceeds the limit of " +
                             std::to_string(softmetal::kThreadgroupBytes));
    return nil;
  }
  return [[SoftmetalPipeline alloc] initWithDevice:self state:state label:[computeFunction label]];
}
- (id<MTLEvent>)newEvent {
  return [[SoftmetalEvent alloc] initWithDevice:self];
}
- (id<MTLSharedEvent>)newSharedEvent {
  return [[SoftmetalEvent alloc] initWithDevice:self];
}
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)desc
                                               error:(NSError**)error {
  return [[SoftmetalResidencySet alloc] initWithDevice:self label:[desc label]];
}
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
  if (get(Setting::kNoDevice) != 0) return nil;
  static SoftmetalDevice* device = [[SoftmetalDevice alloc] init];
  return [device retain];
}
