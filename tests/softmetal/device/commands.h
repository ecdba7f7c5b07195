// What a command buffer holds: kernels to run, events to wait for and to signal.
#pragma once

#import <Metal/Metal.h>

#include <array>
#include <cstddef>
#include <memory>
#include <variant>
#include <vector>

#include "device/library.h"
#include "device/ref.h"
#include "emulator/dispatch.h"

namespace softmetal {

// A buffer, or bytes, bound to an index.
struct Binding {
  Ref<id<MTLBuffer>> retained;  // nothing in a command buffer with unretained references
  id<MTLBuffer> buffer = nil;
  NSUInteger offset = 0;
  std::shared_ptr<std::vector<std::byte>> bytes;
  explicit operator bool() const { return buffer != nil || bytes != nullptr; }
};

struct KernelCommand {
  Ref<SoftmetalPipeline*> retained;
  SoftmetalPipeline* pipeline = nil;
  std::array<Binding, kMaxBuffers> bindings;
  std::array<u32, kMaxBuffers> threadgroup_bytes{};
  Vector3 threadgroups{};
  Vector3 threads_per_threadgroup{};
  Vector3 threads_per_grid{};
};

struct EventCommand {
  Ref<id<MTLSharedEvent>> event;
  uint64_t value = 0;
  bool signals = false;
};

using Command = std::variant<KernelCommand, EventCommand>;

// Raises KernelError.
void run_kernel(const KernelCommand& command);

}  // namespace softmetal
