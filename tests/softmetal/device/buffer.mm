#include "device/buffer.h"

#include <Block.h>
#include <sys/mman.h>

#include "device/device.h"
#include "device/ref.h"
#include "device/violation.h"

namespace softmetal {

namespace {
constexpr size_t kGuardBytes = 65536;
constexpr size_t kAlignment = 256;
}  // namespace

GuardedMemory::GuardedMemory(size_t bytes) {
  const size_t inner = (bytes + 4095) / 4096 * 4096;
  mapped_ = inner + 2 * kGuardBytes;
  mapping_ =
      ::mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) return;
  char* first = static_cast<char*>(mapping_) + kGuardBytes;
  if (inner > 0 && ::mprotect(first, inner, PROT_READ | PROT_WRITE) != 0) return;
  data_ = first + inner - (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

GuardedMemory::~GuardedMemory() {
  if (mapping_ != MAP_FAILED) ::munmap(mapping_, mapped_);
}

}  // namespace softmetal

@implementation SoftmetalBuffer
- (instancetype)initWithDevice:(id<MTLDevice>)device
                        length:(NSUInteger)length
                       options:(MTLResourceOptions)options {
  memory_ = new softmetal::GuardedMemory(length);
  if (memory_->data() == nullptr) {
    [self release];
    return nil;
  }
  return [self initWithDevice:device
                      pointer:memory_->data()
                       length:length
                      options:options
                  deallocator:nil];
}
- (instancetype)initWithDevice:(id<MTLDevice>)device
                       pointer:(void*)pointer
                        length:(NSUInteger)length
                       options:(MTLResourceOptions)options
                   deallocator:(void (^)(void*, NSUInteger))deallocator {
  device_ = device;
  pointer_ = pointer;
  length_ = length;
  options_ = options;
  if (deallocator != nil) deallocator_ = Block_copy(deallocator);
  softmetal::count_allocated(static_cast<int64_t>(length));
  return self;
}
- (void)dealloc {
  if (pointer_ != nullptr) softmetal::count_allocated(-static_cast<int64_t>(length_));
  if (deallocator_ != nil) {
    deallocator_(pointer_, length_);
    Block_release(deallocator_);
  }
  delete memory_;
  [super dealloc];
}
- (NSUInteger)length {
  return length_;
}
- (void*)contents {
  return [self storageMode] == MTLStorageModePrivate ? nullptr : pointer_;
}
- (MTLGPUAddress)gpuAddress {
  return reinterpret_cast<MTLGPUAddress>(pointer_);
}
- (NSUInteger)allocatedSize {
  return length_;
}
- (MTLResourceOptions)resourceOptions {
  return options_;
}
- (MTLStorageMode)storageMode {
  return static_cast<MTLStorageMode>(options_ >> 4 & 15);
}
- (MTLCPUCacheMode)cpuCacheMode {
  return static_cast<MTLCPUCacheMode>(options_ & 15);
}
- (MTLHazardTrackingMode)hazardTrackingMode {
  return static_cast<MTLHazardTrackingMode>(options_ >> 8 & 3);
}
@end
