// A use of the API that Apple's validation layer refuses: says which, and aborts.
#pragma once

namespace softmetal {

[[noreturn]] __attribute__((format(printf, 1, 2))) void violation(const char* format, ...);

}  // namespace softmetal
