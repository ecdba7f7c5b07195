#include "state/recurrent.h"

#include <cstring>

namespace mference {

namespace {
constexpr size_t kAlignment = 256;

size_t aligned(size_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}
}  // namespace

RecurrentState::RecurrentState(Device& device, const std::vector<RecurrentShape>& layers,
                               KvType type)
    : type_(type) {
  const size_t element = type == KvType::kFloat16 ? 2 : 4;
  size_t bytes = 0;
  for (const RecurrentShape& shape : layers) {
    Layer layer;
    layer.delta = {nullptr, bytes, shape.delta * sizeof(float)};
    bytes += aligned(layer.delta.size);
    layer.tail = {nullptr, bytes, shape.tail * element};
    bytes += aligned(layer.tail.size);
    layers_.push_back(layer);
  }
  if (bytes == 0) return;
  buffer_ = device.allocate(bytes, kAlignment);
  for (Layer& layer : layers_) layer.delta.buffer = layer.tail.buffer = buffer_.get();
}

void RecurrentState::clear() {
  if (buffer_) std::memset(buffer_->data(), 0, buffer_->size());
}

}  // namespace mference
