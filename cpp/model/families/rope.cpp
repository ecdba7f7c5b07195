#include "model/families/rope.h"

#include <cmath>

namespace mference {

Rope::Rope(Device& device, int dim, int rotated, double theta, int rows) : rotated_(rotated) {
  for (int i = 0; i < rotated; ++i) frequencies_.push_back(std::pow(theta, -2.0 * i / dim));
  const size_t size = sizeof(float) * 2 * static_cast<size_t>(rotated) * rows;
  table_ = device.allocate(size);
}

// In double, since float32 angles lose 1e-3 radians at position 10^5.
void Rope::fill(Pass pass) {
  auto* out = reinterpret_cast<float*>(table_->data());
  for (int row = 0; row < pass.count; ++row) {
    for (const double frequency : frequencies_) {
      const double angle = (pass.position + row) * frequency;
      *out++ = static_cast<float>(std::cos(angle));
      *out++ = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace mference
