// The page size of the software device, 16 KiB as on Apple Silicon, in the place of the host's: code
// that rounds memory for Metal to pages then does it as it would on a Mac.
#pragma once

#include <unistd.h>

extern "C" long softmetal_page_size(void);

static inline long softmetal_sysconf(int name) {
  return name == _SC_PAGESIZE ? softmetal_page_size() : sysconf(name);
}
static inline int softmetal_getpagesize(void) {
  return (int)softmetal_page_size();
}

#define sysconf softmetal_sysconf
#define getpagesize softmetal_getpagesize
