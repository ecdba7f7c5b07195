// From the views of an operation to host pointers, refusing whatever does not fit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/ops.h"

namespace mference {

// Each returns the view's first element and raises DeviceError naming `field` (for example
// "NormProject.x") if the view is absent, leaves its buffer, holds fewer than `count` elements, or is
// not aligned to one element.
float* floats(const View& view, size_t count, const char* field);
int32_t* integers(const View& view, size_t count, const char* field);
uint16_t* halves(const View& view, size_t count, const char* field);

// Raises DeviceError "<field>: <what>" unless `accepted`.
void require(bool accepted, const char* field, const char* what);

// An affine matrix in host memory.
struct Matrix {
  const uint8_t* weight = nullptr;
  const uint16_t* scales = nullptr;
  const uint16_t* biases = nullptr;
  int rows = 0;
  int cols = 0;
  int bits = 4;
  int group = 64;

  int groups() const { return cols / group; }
  size_t row_bytes() const { return static_cast<size_t>(cols) * bits / 8; }
  const uint8_t* weight_row(int row) const { return weight + row * row_bytes(); }
  const uint16_t* scale_row(int row) const { return scales + size_t(row) * groups(); }
  const uint16_t* bias_row(int row) const { return biases + size_t(row) * groups(); }
};

Matrix matrix(const Affine& affine, const char* field);

}  // namespace mference
