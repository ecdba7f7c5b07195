#include "device/queue.h"

#include "device/command_buffer.h"
#include "device/serial_thread.h"

@implementation SoftmetalQueue
- (instancetype)initWithDevice:(id<MTLDevice>)device {
  device_ = device;
  thread_ = new softmetal::SerialThread;
  return self;
}
- (void)dealloc {
  delete thread_;
  [label_ release];
  [super dealloc];
}
- (id<MTLDevice>)device {
  return device_;
}
- (NSString*)label {
  return label_;
}
- (void)setLabel:(NSString*)label {
  [label retain];
  [label_ release];
  label_ = label;
}
- (id<MTLCommandBuffer>)commandBuffer {
  return [[[SoftmetalCommandBuffer alloc] initWithQueue:self retaining:YES] autorelease];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  return [[[SoftmetalCommandBuffer alloc] initWithQueue:self retaining:NO] autorelease];
}
- (void)enqueue:(SoftmetalCommandBuffer*)buffer {
  [buffer retain];
  thread_->post([buffer] {
    [buffer run];
    [buffer release];
  });
}
- (void)addResidencySet:(id<MTLResidencySet>)residencySet {
}
- (void)removeResidencySet:(id<MTLResidencySet>)residencySet {
}
@end
