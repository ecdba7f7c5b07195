// What the objects of a device have in common.
#pragma once

#import <Metal/Metal.h>

@interface SoftmetalObject : NSObject {
  id<MTLDevice> device_;
  NSString* label_;
}
- (id<MTLDevice>)device;
- (NSString*)label;
- (void)setLabel:(NSString*)label;
@end
