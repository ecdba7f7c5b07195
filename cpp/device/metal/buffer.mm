#include "device/metal/buffer.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/errors.h"
#include "device/gpu/cuts.h"

namespace mference::metal {

namespace {

size_t page_size() {
  return static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

size_t round_down(size_t value, size_t unit) {
  return value / unit * unit;
}

size_t round_up(size_t value, size_t unit) {
  return round_down(value + unit - 1, unit);
}

}  // namespace

MetalBuffer::MetalBuffer(id<MTLDevice> device, std::byte* data, size_t size,
                         std::span<const Range> spans)
    : data_(data), size_(size) {
  const size_t page = page_size();
  if (reinterpret_cast<uintptr_t>(data) % page != 0) {
    throw DeviceError("memory for Metal must begin at a page of " + std::to_string(page) +
                      " bytes");
  }
  // A cut may fall inside a page: both neighbours then hold that page.
  const size_t limit = round_down([device maxBufferLength], page);
  for (const Range& cut : gpu::cut(size, limit < size ? limit - 2 * page : limit, spans)) {
    Piece piece;
    piece.first = round_down(cut.first, page);
    piece.last = round_up(cut.last, page);
    piece.buffer =
        Ref<id<MTLBuffer>>::adopt([device newBufferWithBytesNoCopy:data + piece.first
                                                            length:piece.last - piece.first
                                                           options:MTLResourceStorageModeShared
                                                       deallocator:nil]);
    if (!piece.buffer) {
      throw DeviceError("Metal does not take " + std::to_string(piece.last - piece.first) +
                        " bytes as a buffer; choose fewer expert slots or a shorter context");
    }
    pieces_.push_back(std::move(piece));
  }
}

MetalBuffer::Place MetalBuffer::place(const View& view) const {
  const size_t last = view.offset + view.size;
  for (const Piece& piece : pieces_) {
    if (view.offset >= piece.first && last <= piece.last) {
      return {piece.buffer.get(), static_cast<NSUInteger>(view.offset - piece.first)};
    }
  }
  throw DeviceError("bytes " + std::to_string(view.offset) + " to " + std::to_string(last) +
                    " lie in no Metal buffer of these " + std::to_string(size_) + " bytes");
}

OwnedMetalBuffer::OwnedMetalBuffer(id<MTLDevice> device, size_t size, size_t alignment,
                                   std::shared_ptr<Residency> residency)
    : AnonymousMemory(round_up(size, page_size()), std::max(alignment, page_size())),
      MetalBuffer(device, AnonymousMemory::data(), size, {}),
      residency_(std::move(residency)) {
  for_each([&](id<MTLBuffer> buffer) { residency_->add(buffer); });
}

OwnedMetalBuffer::~OwnedMetalBuffer() {
  const Pool pool;
  for_each([&](id<MTLBuffer> buffer) { residency_->remove(buffer); });
}

}  // namespace mference::metal
