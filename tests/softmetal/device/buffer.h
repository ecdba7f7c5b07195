#pragma once

#import <Metal/Metal.h>

#include <memory>

#include "device/object.h"

namespace softmetal {

// Memory with pages around it that cannot be touched, ending where the second of them begins.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes);  // zero-filled; null data if there is not that much
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* mapping_;
  size_t mapped_;
  void* data_ = nullptr;
};

}  // namespace softmetal

@interface SoftmetalBuffer : SoftmetalObject <MTLBuffer> {
  void* pointer_;
  NSUInteger length_;
  MTLResourceOptions options_;
  softmetal::GuardedMemory* memory_;
  void (^deallocator_)(void*, NSUInteger);
}
- (instancetype)initWithDevice:(id<MTLDevice>)device
                        length:(NSUInteger)length
                       options:(MTLResourceOptions)options;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                       pointer:(void*)pointer
                        length:(NSUInteger)length
                       options:(MTLResourceOptions)options
                   deallocator:(void (^)(void*, NSUInteger))deallocator;
@end
