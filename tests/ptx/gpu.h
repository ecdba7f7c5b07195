// A GPU of NVIDIA that runs the kernels of metal/ from PTX, for tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/gpu/gpu.h"
#include "times.h"

namespace mference::ptx {

class PtxGpu final : public gpu::Gpu {
 public:
  // The process's own for a folder that compile.py wrote, and for timing or not: its kernels are
  // assembled once. Raises DeviceError if there is no GPU.
  static std::shared_ptr<PtxGpu> open(const std::string& directory, bool timed);

  PtxGpu(const std::string& directory, bool timed);
  ~PtxGpu() override;
  const gpu::Traits& traits() const override;
  std::unique_ptr<Buffer> allocate(size_t size, size_t alignment) override;
  std::unique_ptr<Buffer> wrap(std::byte* data, size_t size, std::span<const Range> spans) override;
  std::unique_ptr<Event> make_event() override;
  std::unique_ptr<gpu::Queue> make_queue() override;
  gpu::Library& library() override;

  std::vector<Timing> take_times();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mference::ptx
