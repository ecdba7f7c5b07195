// What the parts of the device share.
#pragma once

#import <Metal/Metal.h>

#include <string>

namespace softmetal {

void set_error(NSError** error, NSErrorDomain domain, NSInteger code, const std::string& text);
NSError* make_error(NSErrorDomain domain, NSInteger code, const std::string& text);

// Of all buffers that are alive.
void count_allocated(int64_t bytes);
int64_t allocated();

}  // namespace softmetal
