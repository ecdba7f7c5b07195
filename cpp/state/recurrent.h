// What layers without keys and values keep of a sequence: matrices of the delta rule, and the last
// rows of a convolution.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "device/device.h"

namespace mference {

// A layer's need, in elements; a layer of another kind has none.
struct RecurrentShape {
  size_t delta = 0;  // float32
  size_t tail = 0;   // of the type of the keys and values
};

class RecurrentState {
 public:
  // All zero. Raises DeviceError if the memory does not suffice.
  RecurrentState(Device& device, const std::vector<RecurrentShape>& layers, KvType type);

  bool empty() const { return !buffer_; }
  View delta(int layer) const { return layers_[layer].delta; }
  View tail(int layer) const { return layers_[layer].tail; }
  KvType type() const { return type_; }
  size_t bytes() const { return buffer_ ? buffer_->size() : 0; }
  std::byte* data() const { return buffer_ ? buffer_->data() : nullptr; }
  // Back to zero: the beginning of a sequence.
  void clear();

 private:
  struct Layer {
    View delta, tail;
  };
  std::unique_ptr<Buffer> buffer_;
  std::vector<Layer> layers_;
  KvType type_;
};

}  // namespace mference
