// Host memory that the GPU reads and writes.
#pragma once

#include <memory>

#include "device/device.h"
#include "driver.h"

namespace mference::ptx {

// Where a buffer's bytes lie for kernels: in the host's memory itself, over the bus, or in a copy
// on the GPU that is refreshed before and fetched after every launch.
enum class Memory { kHost, kCopied };

class PtxBuffer : public Buffer {
 public:
  PtxBuffer(const PtxBuffer&) = delete;
  PtxBuffer& operator=(const PtxBuffer&) = delete;
  ~PtxBuffer() override;

  std::byte* data() const override { return data_; }
  size_t size() const override { return size_; }
  // For kernels, of the first byte.
  CUdeviceptr address() const { return address_; }

 protected:
  PtxBuffer(std::byte* data, size_t size, Memory memory);
  // Host memory that the driver has pinned: kernels use it as it is, unless there is a copy.
  void use_pinned(std::byte* data);

 private:
  std::byte* data_;
  size_t size_;
  CUdeviceptr copy_ = 0;
  CUdeviceptr address_ = 0;
};

// Pinned memory of its own, zero-filled.
class PinnedBuffer final : public PtxBuffer {
 public:
  static std::unique_ptr<PinnedBuffer> make(size_t size, size_t alignment, Memory memory);
  ~PinnedBuffer() override;

 private:
  PinnedBuffer(void* base, std::byte* data, size_t size, Memory memory);

  void* base_;
};

// Somebody else's memory, registered with the driver where it lets itself be. Files mapped for
// reading may not: they are copied, once, since their bytes never change.
class WrappedBuffer final : public PtxBuffer {
 public:
  WrappedBuffer(std::byte* data, size_t size, Memory memory);
  ~WrappedBuffer() override;

 private:
  bool registered_ = false;
  std::unique_ptr<PinnedBuffer> pinned_copy_;
};

}  // namespace mference::ptx
