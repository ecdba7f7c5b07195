// The part of libdispatch that shared event listeners and library loading need.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct softmetal_dispatch_queue* dispatch_queue_t;
typedef struct softmetal_dispatch_queue_attr* dispatch_queue_attr_t;
typedef void (^dispatch_block_t)(void);
typedef uint64_t dispatch_time_t;

#define DISPATCH_QUEUE_SERIAL ((dispatch_queue_attr_t)0)

extern "C" dispatch_queue_t dispatch_queue_create(const char* label, dispatch_queue_attr_t attr);
extern "C" void dispatch_release(dispatch_queue_t queue);
extern "C" void dispatch_retain(dispatch_queue_t queue);
extern "C" void dispatch_async(dispatch_queue_t queue, dispatch_block_t block);
extern "C" void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block);
