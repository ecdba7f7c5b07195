// Products of affine-quantized matrices with rows of activations.
//
// The default path holds activations as int16 with one scale for each group of the matrix. With
// D[r, g] = sum of codes q[r, j] x[j] over group g, an exact int32, and S[g] = scale_x[g] * sum of
// x[j], the canonical value of an element is, every operation rounded to float32 on its own:
//
//   term[g] = float(D[r, g]) * (scale[r, g] * scale_x[g]) + bias[r, g] * S[g]
//   lane[l] = ((0 + term[l]) + term[l + 8]) + term[l + 16] ...                       l = 0 ... 7
//   y[r]    = ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
//             ((lane[1] + lane[5]) + (lane[3] + lane[7]))
//
// Because D is exact, the order of columns within a group is free, and each kernel takes the order
// its instructions like. Everything else follows the lines above on every instruction set, for one
// row of activations or many, so that all of them give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "device/cpu/execute.h"
#include "device/cpu/lanes.h"
#include "device/operands.h"

namespace mference::cpu {

// Rows of activations, prepared for matrices of one format.
struct Inputs {
  int rows = 0;
  Layout layout = Layout::kNatural;
  const float* values = nullptr;  // the float32 path, else null
  const int16_t* codes = nullptr;
  const float* scales = nullptr;
  const float* sums = nullptr;
  // Elements from one row to the next. Scales and sums are padded with zeros to a multiple of
  // eight.
  size_t value_stride = 0;
  size_t code_stride = 0;
  size_t group_stride = 0;

  Inputs from(int row) const;
};

struct AffineKernels {
  // The order of codes in which `vector` and `block` take a matrix of this format.
  Layout (*layout)(int bits, int group);
  // y[0 ... last - first) = rows [first, last) of the matrix times row 0 of the inputs.
  void (*vector)(const Matrix& m, const Inputs& x, int first, int last, float* y);
  // The same for all rows of the inputs: y[t * stride + r - first].
  void (*block)(const Matrix& m, const Inputs& x, int first, int last, float* y, size_t stride);
};

extern const AffineKernels kPortableAffine;
#if defined(__x86_64__)
extern const AffineKernels kAvx2Affine;
extern const AffineKernels kAvx512Affine;
#endif

// Any format: what the other instruction sets use where they have no kernel of their own.
void portable_vector(const Matrix& m, const Inputs& x, int first, int last, float* y);

// Whether inputs prepared for one matrix serve the other.
inline bool same_format(const Matrix& a, const Matrix& b) {
  return a.cols == b.cols && a.bits == b.bits && a.group == b.group;
}

// Prepares row(0) ... row(rows - 1), each of m.cols floats, in `scratch` for products with matrices
// of m's format.
Inputs prepare(Context& context, Scratch& scratch, const Matrix& m, int rows,
               const std::function<const float*(int)>& row);

// y[t * stride + r - first] = matrix row r times input row t, for r in [first, last).
void multiply(const Options& options, const Matrix& m, const Inputs& x, int first, int last,
              float* y, size_t stride);

// One matrix product of several that share a parallel loop: y[t * stride + r].
struct Product {
  Matrix matrix;
  float* y;
  size_t stride;
};

void multiply_all(Context& context, const Product* products, int count, const Inputs& x);

// What `rows` rows of a matrix cost in products with `input_rows` rows of activations, as bytes of
// memory traffic. Each further row of activations costs about a third of what reading the weights
// does.
inline size_t product_bytes(const Matrix& m, size_t rows, int input_rows) {
  return m.row_bytes() * rows * (2 + size_t(input_rows)) / 3;
}

// Matrix rows in one task: enough work to pay for handing it out, and whole blocks of kernels.
int rows_per_task(const Matrix& m, int input_rows);

}  // namespace mference::cpu
