#include "device/violation.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace softmetal {

void violation(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fputs("softmetal: ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
  va_end(arguments);
  std::fflush(stderr);
  std::abort();
}

}  // namespace softmetal
