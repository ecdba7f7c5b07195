// Host memory as Metal buffers.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/anonymous_memory.h"
#include "device/device.h"
#include "device/metal/objects.h"
#include "device/metal/residency.h"

namespace mference::metal {

// A buffer of this device: one MTLBuffer, or several where the memory is longer than the device's
// limit for one. All of them are views of host memory; nothing is ever copied.
class MetalBuffer : public Buffer {
 public:
  // `spans` are ranges [first, last) that must each lie within one MTLBuffer. Raises DeviceError
  // if the memory does not begin at a page, or a span is longer than the limit.
  MetalBuffer(id<MTLDevice> device, std::byte* data, size_t size, std::span<const Range> spans);

  std::byte* data() const override { return data_; }
  size_t size() const override { return size_; }

  // The MTLBuffer that holds all of a view, and where the view begins in it.
  struct Place {
    id<MTLBuffer> buffer;
    NSUInteger offset;
  };
  Place place(const View& view) const;
  template <class F>
  void for_each(F&& visit) const {
    for (const Piece& piece : pieces_) visit(piece.buffer.get());
  }

 private:
  struct Piece {
    size_t first = 0;
    size_t last = 0;
    Ref<id<MTLBuffer>> buffer;
  };

  std::byte* data_;
  size_t size_;
  std::vector<Piece> pieces_;
};

// A buffer with memory of its own, zero-filled, which the GPU keeps at hand.
class OwnedMetalBuffer final : private AnonymousMemory, public MetalBuffer {
 public:
  OwnedMetalBuffer(id<MTLDevice> device, size_t size, size_t alignment,
                   std::shared_ptr<Residency> residency);
  ~OwnedMetalBuffer() override;

 private:
  std::shared_ptr<Residency> residency_;
};

}  // namespace mference::metal
