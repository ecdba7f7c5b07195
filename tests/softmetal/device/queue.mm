#include "device/queue.h"

#include "device/command_buffer.h"
#include "device/serial_thread.h"
#include "device/violation.h"

@implementation SoftmetalQueue
- (instancetype)initWithDevice:(id<MTLDevice>)device {
  device_ = device;
  thread_ = new softmetal::SerialThread;
  sets_ = new softmetal::ResidencySets;
  return self;
}
- (void)dealloc {
  delete thread_;
  delete sets_;
  [super dealloc];
}
- (id<MTLCommandBuffer>)commandBuffer {
  return [[[SoftmetalCommandBuffer alloc] initWithQueue:self retaining:YES] autorelease];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  return [[[SoftmetalCommandBuffer alloc] initWithQueue:self retaining:NO] autorelease];
}
- (void)enqueue:(SoftmetalCommandBuffer*)buffer {
  for (const auto& set : *sets_) [set.get() checkMemory];
  [buffer retain];
  thread_->post([buffer] {
    [buffer run];
    [buffer release];
  });
}
- (void)addResidencySet:(id<MTLResidencySet>)residencySet {
  if (residencySet == nil) softmetal::violation("-[MTLCommandQueue addResidencySet:]: nil");
  sets_->push_back(softmetal::Ref<SoftmetalResidencySet*>::share(
      static_cast<SoftmetalResidencySet*>(residencySet)));
}
- (void)removeResidencySet:(id<MTLResidencySet>)residencySet {
  std::erase_if(*sets_, [&](const auto& set) { return set.get() == residencySet; });
}
@end
