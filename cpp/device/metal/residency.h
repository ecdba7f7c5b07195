// What the GPU keeps at hand between command buffers.
#pragma once

#include <mutex>

#include "device/metal/objects.h"

namespace mference::metal {

// The memory that every step uses: keys and values, activations, scratch. Expert slots and mapped
// files are not among it: they are at hand while a command buffer names them, and what none names the
// system may take back. Does nothing before macOS 15, which has no residency sets.
class Residency {
 public:
  explicit Residency(id<MTLDevice> device);
  // Of all command buffers of the queue from now on.
  void attach(id<MTLCommandQueue> queue);
  void add(id<MTLBuffer> buffer);
  // Before the buffer's memory goes.
  void remove(id<MTLBuffer> buffer);

 private:
  std::mutex mutex_;
  Ref<id> set_;  // an MTLResidencySet, which older systems do not declare
};

}  // namespace mference::metal
