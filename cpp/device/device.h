// What a model needs of a device: buffers, events and one in-order stream of operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>

#include "device/ops.h"

namespace mference {

// Bytes that the host and the device both see. The owner keeps a buffer alive until every
// operation that names it has completed.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;
};

// Bytes [first, last) of a memory.
struct Range {
  size_t first = 0;
  size_t last = 0;
};

// A counter that only grows. A host or a stream signals a value; a host or a stream waits until
// the counter has reached one.
class Event {
 public:
  virtual ~Event() = default;
  virtual void signal(uint64_t value) = 0;
  virtual void wait(uint64_t value) = 0;
  virtual uint64_t value() const = 0;
};

// An in-order queue. encode() and the stream forms of wait() and signal() only queue; commit()
// hands what was queued to the device. After a failure the remaining operations are skipped,
// signals still happen so that no host waits for ever, and the next call of check() or
// synchronize() raises the error.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void encode(const Operation& operation) = 0;
  virtual void wait(Event& event, uint64_t value) = 0;
  virtual void signal(Event& event, uint64_t value) = 0;
  virtual void commit() = 0;
  // Commits, waits for everything queued, and raises the first error.
  virtual void synchronize() = 0;
  // Raises the first error, if there is one, without waiting.
  virtual void check() = 0;
  // Makes the stream fail from outside (for example because a read failed). Any thread may call.
  virtual void abort(std::exception_ptr error) = 0;
  // How long the stream has stood at its waits; 0 where the device does not tell.
  virtual uint64_t stalled_nanoseconds() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  // Zero-filled memory, aligned to `alignment` (a power of two). What is large costs nothing until
  // it is touched. Raises DeviceError naming the size if there is not that much.
  virtual std::unique_ptr<Buffer> allocate(size_t size, size_t alignment = 64) = 0;
  // Host memory seen through a buffer, without a copy. The memory begins at a page and must outlive
  // the buffer. `spans` are what views of it will name: a device that has to cut the memory into
  // several buffers cuts between them.
  virtual std::unique_ptr<Buffer> wrap(std::byte* data, size_t size,
                                       std::span<const Range> spans = {}) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
};

}  // namespace mference
