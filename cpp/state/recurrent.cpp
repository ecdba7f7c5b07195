#include "state/recurrent.h"

#include <cstring>
#include <string>

#include "base/errors.h"
#include "base/numeric.h"

namespace mference {

namespace {
constexpr size_t kAlignment = 256;
}  // namespace

RecurrentState::RecurrentState(Device& device, const std::vector<RecurrentShape>& layers,
                               KvType type)
    : type_(type) {
  const size_t element = type == KvType::kFloat16 ? 2 : 4;
  size_t bytes = 0;
  for (const RecurrentShape& shape : layers) {
    Layer layer;
    layer.delta = {nullptr, bytes, shape.delta * sizeof(float)};
    bytes += round_up(layer.delta.size, kAlignment);
    layer.tail = {nullptr, bytes, shape.tail * element};
    bytes += round_up(layer.tail.size, kAlignment);
    layers_.push_back(layer);
  }
  if (bytes == 0) return;
  try {
    buffer_ = device.allocate(bytes, kAlignment);
  } catch (const DeviceError& error) {
    throw DeviceError(std::string(error.what()) +
                      ", for the recurrent states of a sequence; use fewer expert slots");
  }
  for (Layer& layer : layers_) layer.delta.buffer = layer.tail.buffer = buffer_.get();
}

void RecurrentState::clear() {
  if (buffer_) std::memset(buffer_->data(), 0, buffer_->size());
}

}  // namespace mference
