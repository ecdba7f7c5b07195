#include "gpu.h"

#include <map>
#include <mutex>
#include <utility>

#include "buffer.h"
#include "device/cpu/stream.h"
#include "library.h"
#include "queue.h"

namespace mference::ptx {

struct PtxGpu::State {
  explicit State(const std::string& directory) : library(directory) {}

  PtxLibrary library;
  gpu::Traits traits;
  Memory memory = Memory::kHost;
  std::unique_ptr<Times> times;
};

std::shared_ptr<PtxGpu> PtxGpu::open(const std::string& directory, bool timed) {
  static auto* mutex = new std::mutex;
  static auto* opened = new std::map<std::pair<std::string, bool>, std::shared_ptr<PtxGpu>>;
  const std::lock_guard lock(*mutex);
  auto& gpu = (*opened)[{directory, timed}];
  if (!gpu) gpu = std::make_shared<PtxGpu>(directory, timed);
  return gpu;
}

PtxGpu::PtxGpu(const std::string& directory, bool timed)
    : state_(std::make_unique<State>(directory)) {
  state_->traits.name = Driver::instance().gpu_name();
  if (!timed) return;
  state_->memory = Memory::kCopied;
  state_->times = std::make_unique<Times>();
}

PtxGpu::~PtxGpu() = default;

const gpu::Traits& PtxGpu::traits() const {
  return state_->traits;
}

std::unique_ptr<Buffer> PtxGpu::allocate(size_t size, size_t alignment) {
  return PinnedBuffer::make(size, alignment, state_->memory);
}

std::unique_ptr<Buffer> PtxGpu::wrap(std::byte* data, size_t size, std::span<const Range>) {
  return std::make_unique<WrappedBuffer>(data, size, state_->memory);
}

std::unique_ptr<Event> PtxGpu::make_event() {
  return std::make_unique<cpu::CpuEvent>();
}

std::unique_ptr<gpu::Queue> PtxGpu::make_queue() {
  return std::make_unique<PtxQueue>(state_->times.get());
}

gpu::Library& PtxGpu::library() {
  return state_->library;
}

std::vector<Timing> PtxGpu::take_times() {
  return state_->times ? state_->times->take() : std::vector<Timing>{};
}

}  // namespace mference::ptx
