#include "device/residency.h"

#include <sys/mman.h>

#include <algorithm>

#include "device/buffer.h"
#include "device/violation.h"

using softmetal::Allocations;

namespace {

auto find(Allocations& all, id<MTLAllocation> allocation) {
  return std::find_if(all.begin(), all.end(),
                      [&](const auto& each) { return each.get() == allocation; });
}

}  // namespace

@implementation SoftmetalResidencySet
- (instancetype)initWithDevice:(id<MTLDevice>)device label:(NSString*)label {
  device_ = device;
  label_ = [label retain];
  pending_ = new Allocations;
  committed_ = new Allocations;
  mutex_ = new std::mutex;
  return self;
}
- (void)dealloc {
  delete pending_;
  delete committed_;
  delete mutex_;
  [super dealloc];
}
- (uint64_t)allocatedSize {
  const std::lock_guard lock(*mutex_);
  uint64_t sum = 0;
  for (const auto& allocation : *committed_) sum += [allocation.get() allocatedSize];
  return sum;
}
- (NSUInteger)allocationCount {
  const std::lock_guard lock(*mutex_);
  return committed_->size();
}
- (void)requestResidency {
}
- (void)endResidency {
}
- (void)addAllocation:(id<MTLAllocation>)allocation {
  if (allocation == nil) softmetal::violation("-[MTLResidencySet addAllocation:]: nil");
  const std::lock_guard lock(*mutex_);
  if (find(*pending_, allocation) == pending_->end()) {
    pending_->push_back(softmetal::Ref<id<MTLAllocation>>::share(allocation));
  }
}
- (void)removeAllocation:(id<MTLAllocation>)allocation {
  const std::lock_guard lock(*mutex_);
  const auto at = find(*pending_, allocation);
  if (at != pending_->end()) pending_->erase(at);
}
- (void)removeAllAllocations {
  const std::lock_guard lock(*mutex_);
  pending_->clear();
}
- (BOOL)containsAllocation:(id<MTLAllocation>)anAllocation {
  const std::lock_guard lock(*mutex_);
  return find(*committed_, anAllocation) != committed_->end();
}
- (void)commit {
  const std::lock_guard lock(*mutex_);
  *committed_ = *pending_;
}
- (void)checkMemory {
  const std::lock_guard lock(*mutex_);
  for (const auto& allocation : *committed_) {
    const auto* buffer = static_cast<SoftmetalBuffer*>(allocation.get());
    // Says whether the pages are mapped, and does nothing to memory without a file.
    const auto address = reinterpret_cast<uintptr_t>([buffer gpuAddress]) / 4096 * 4096;
    if (::msync(reinterpret_cast<void*>(address), [buffer length], MS_ASYNC) != 0) {
      softmetal::violation("a residency set of the queue holds a buffer whose memory is gone");
    }
  }
}
@end

@implementation MTLResidencySetDescriptor
- (void)dealloc {
  [label_ release];
  [super dealloc];
}
- (NSString*)label {
  return label_;
}
- (void)setLabel:(NSString*)label {
  [label retain];
  [label_ release];
  label_ = label;
}
- (NSUInteger)initialCapacity {
  return capacity_;
}
- (void)setInitialCapacity:(NSUInteger)capacity {
  capacity_ = capacity;
}
@end
