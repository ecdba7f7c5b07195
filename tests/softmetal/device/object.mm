#include "device/object.h"

@implementation SoftmetalObject
- (void)dealloc {
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
@end
