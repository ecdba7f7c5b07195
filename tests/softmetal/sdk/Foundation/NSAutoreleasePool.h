#pragma once

#include <Foundation/NSObject.h>

@interface NSAutoreleasePool : NSObject {
  void* objects_;
  NSAutoreleasePool* outer_;
}
- (void)drain;
@end
