#include "foundation/autorelease.h"

#import <Foundation/Foundation.h>

#include <vector>

#include "device/violation.h"

static thread_local NSAutoreleasePool* innermost = nil;

@interface NSAutoreleasePool (Objects)
- (void)adopt:(id)object;
@end

namespace softmetal {

void autorelease(id object) {
  if (innermost == nil) {
    violation("an object of class %s was autoreleased on a thread without a pool, and leaks",
              class_getName(object_getClass(object)));
  }
  [innermost adopt:object];
}

}  // namespace softmetal

@implementation NSAutoreleasePool
- (instancetype)init {
  objects_ = new std::vector<id>;
  outer_ = innermost;
  innermost = self;
  return self;
}
- (void)adopt:(id)object {
  static_cast<std::vector<id>*>(objects_)->push_back(object);
}
- (instancetype)retain {
  softmetal::violation("-[NSAutoreleasePool retain]: a pool cannot be retained");
}
- (void)drain {
  [self release];
}
- (void)dealloc {
  if (innermost != self) {
    softmetal::violation(
        "-[NSAutoreleasePool drain]: this is not the innermost pool of the thread");
  }
  auto* objects = static_cast<std::vector<id>*>(objects_);
  // Releasing may autorelease more.
  for (size_t i = 0; i < objects->size(); ++i) [(*objects)[i] release];
  delete objects;
  innermost = outer_;
  [super dealloc];
}
@end
