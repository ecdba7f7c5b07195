// What the kernel launches of this directory need of a GPU: five small things. The operations of
// ops.h are turned into launches once, for every GPU; a device that has these five runs them all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"

namespace mference::gpu {

// A compiled kernel with its function constants set.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
};

// The kernels of metal/, compiled. Raises DeviceError with the compiler's message, or if there is
// no such kernel.
class Library {
 public:
  virtual ~Library() = default;
  // `constants` are integers by index: [[function_constant(i)]]. The same arguments give the same
  // pipeline, which lives as long as the library.
  virtual const Pipeline& pipeline(const std::string& kernel,
                                   const std::vector<int32_t>& constants = {}) = 0;
};

// One kernel over a grid of threadgroups. `views` are bound to buffer(0), buffer(1) and so on; an
// empty view leaves its index unbound. The bytes of `constants` follow at the next index; launch()
// copies them.
struct Launch {
  static constexpr size_t kMaxViews = 24;
  const Pipeline* pipeline = nullptr;
  std::array<View, kMaxViews> views;
  int view_count = 0;
  const void* constants = nullptr;
  size_t constants_size = 0;
  std::array<uint32_t, 3> groups{1, 1, 1};
  uint32_t threads = 32;         // of a threadgroup, a multiple of 32
  size_t threadgroup_bytes = 0;  // of the one dynamic threadgroup array, 0 if there is none
  const char* label = "";
};

// An in-order queue with the contract of mference::Stream: work is encoded, and runs once it is
// committed. The launches of one queue run one after another, each seeing the writes of those
// before it.
class Queue {
 public:
  virtual ~Queue() = default;
  virtual void launch(const Launch& launch) = 0;
  virtual void wait(Event& event, uint64_t value) = 0;
  virtual void signal(Event& event, uint64_t value) = 0;
  virtual void commit() = 0;
  virtual void synchronize() = 0;
  virtual void check() = 0;
  virtual void abort(std::exception_ptr error) = 0;
  virtual uint64_t stalled_nanoseconds() const = 0;
};

// What the launches may rely on.
struct Traits {
  std::string name;
  bool tensor_ops = false;  // the Metal 4 matmul2d kernels may be used
  size_t threadgroup_bytes = 32 * 1024;
};

// The GPU itself: buffers and events are those of device.h.
class Gpu {
 public:
  virtual ~Gpu() = default;
  virtual const Traits& traits() const = 0;
  virtual std::unique_ptr<Buffer> allocate(size_t size, size_t alignment) = 0;
  virtual std::unique_ptr<Buffer> wrap(std::byte* data, size_t size,
                                       std::span<const Range> spans) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual std::unique_ptr<Queue> make_queue() = 0;
  virtual Library& library() = 0;
};

// A device whose streams launch kernels on the GPU.
std::shared_ptr<Device> make_device(std::shared_ptr<Gpu> gpu);

}  // namespace mference::gpu
