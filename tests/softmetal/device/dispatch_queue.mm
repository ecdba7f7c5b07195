// libdispatch's serial queues.
#include <Block.h>
#include <dispatch/dispatch.h>

#include <atomic>
#include <future>

#include "device/serial_thread.h"

struct softmetal_dispatch_queue {
  std::atomic<long> references{1};
  softmetal::SerialThread thread;
};

dispatch_queue_t dispatch_queue_create(const char*, dispatch_queue_attr_t) {
  return new softmetal_dispatch_queue;
}

void dispatch_retain(dispatch_queue_t queue) {
  ++queue->references;
}

void dispatch_release(dispatch_queue_t queue) {
  if (--queue->references == 0) delete queue;
}

void dispatch_async(dispatch_queue_t queue, dispatch_block_t block) {
  dispatch_block_t copy = Block_copy(block);
  queue->thread.post([copy] {
    copy();
    Block_release(copy);
  });
}

void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block) {
  std::promise<void> done;
  queue->thread.post([&] {
    block();
    done.set_value();
  });
  done.get_future().wait();
}
