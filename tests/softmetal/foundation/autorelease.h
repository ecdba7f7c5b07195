#pragma once

#import <Foundation/NSObject.h>

namespace softmetal {

// Hands an object to the innermost pool of this thread. Without one it would leak: a violation.
void autorelease(id object);

}  // namespace softmetal
