#include "device/residency.h"

#include <algorithm>

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
  return self;
}
- (void)dealloc {
  delete pending_;
  delete committed_;
  [label_ release];
  [super dealloc];
}
- (id<MTLDevice>)device {
  return device_;
}
- (NSString*)label {
  return label_;
}
- (uint64_t)allocatedSize {
  uint64_t sum = 0;
  for (const auto& allocation : *committed_) sum += [allocation.get() allocatedSize];
  return sum;
}
- (NSUInteger)allocationCount {
  return committed_->size();
}
- (void)requestResidency {
}
- (void)endResidency {
}
- (void)addAllocation:(id<MTLAllocation>)allocation {
  if (allocation == nil) softmetal::violation("-[MTLResidencySet addAllocation:]: nil");
  if (find(*pending_, allocation) == pending_->end()) {
    pending_->push_back(softmetal::Ref<id<MTLAllocation>>::share(allocation));
  }
}
- (void)removeAllocation:(id<MTLAllocation>)allocation {
  const auto at = find(*pending_, allocation);
  if (at != pending_->end()) pending_->erase(at);
}
- (void)removeAllAllocations {
  pending_->clear();
}
- (BOOL)containsAllocation:(id<MTLAllocation>)anAllocation {
  return find(*committed_, anAllocation) != committed_->end();
}
- (void)commit {
  *committed_ = *pending_;
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
