#include "device/cpu/affine.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/numeric.h"

namespace mference::cpu {

namespace {

constexpr int kBlockRows = 32;

const AffineKernels& kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return kAvx512Affine;
  if (isa == Isa::kAvx2) return kAvx2Affine;
#endif
  (void)isa;
  return kPortableAffine;
}

// Sixteen lanes of float32 products of dequantized weights, the tests' second opinion.
void multiply_floats(const Matrix& m, const float* x, int first, int last, float* y) {
  constexpr int kChunk = 32;  // every group is a multiple
  const unsigned mask = (1u << m.bits) - 1;
  const int per_byte = 8 / m.bits;
  for (int r = first; r < last; ++r) {
    const uint8_t* codes = m.weight_row(r);
    float lanes[16] = {};
    for (int j = 0; j < m.cols; j += kChunk) {
      const float scale = bf16_to_float(m.scale_row(r)[j / m.group]);
      const float bias = bf16_to_float(m.bias_row(r)[j / m.group]);
      float w[kChunk];
      for (int i = 0; i < kChunk; ++i) {
        const unsigned code = (codes[(j + i) / per_byte] >> ((i % per_byte) * m.bits)) & mask;
        w[i] = scale * static_cast<float>(code) + bias;
      }
      for (int i = 0; i < kChunk; ++i) lanes[i % 16] += w[i] * x[j + i];
    }
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    y[r - first] = lanes[0];
  }
}

}  // namespace

Inputs Inputs::from(int row) const {
  Inputs rest = *this;
  rest.rows -= row;
  if (values) {
    rest.values += row * value_stride;
  } else {
    rest.codes += row * code_stride;
    rest.scales += row * group_stride;
    rest.sums += row * group_stride;
  }
  return rest;
}

Inputs prepare(Context& context, Scratch& scratch, const Matrix& m, int rows,
               const std::function<const float*(int)>& row) {
  Inputs x;
  x.rows = rows;
  if (context.options.float32_products) {
    float* values =
        reinterpret_cast<float*>(scratch.reserve(size_t(rows) * m.cols * sizeof(float)));
    for (int t = 0; t < rows; ++t) {
      std::memcpy(values + size_t(t) * m.cols, row(t), m.cols * sizeof(float));
    }
    x.values = values;
    x.value_stride = m.cols;
    return x;
  }
  x.layout = kernels(context.options.isa).layout(m.bits, m.group);
  // Kernels read whole blocks of two groups. The extra line keeps the rows of a power-of-two width
  // out of one cache set.
  x.code_stride = round_up(m.cols, 128) + 32;
  x.group_stride = round_up(m.groups(), 8);
  const size_t code_bytes = round_up(x.code_stride * rows * sizeof(int16_t), 64);
  const size_t group_bytes = round_up(x.group_stride * rows * sizeof(float), 64);
  std::byte* block = scratch.reserve(code_bytes + 2 * group_bytes);
  int16_t* codes = reinterpret_cast<int16_t*>(block);
  float* scales = reinterpret_cast<float*>(block + code_bytes);
  float* sums = reinterpret_cast<float*>(block + code_bytes + group_bytes);
  x.codes = codes;
  x.scales = scales;
  x.sums = sums;
  const LaneKernels& lanes = lane_kernels(context.options.isa);
  const size_t pad = x.group_stride - m.groups();
  context.pool.run(rows, size_t(m.cols) * 8, [&](int t) {
    int16_t* row_codes = codes + t * x.code_stride;
    float* row_scales = scales + t * x.group_stride;
    float* row_sums = sums + t * x.group_stride;
    const size_t last_block = size_t(m.cols) / 128 * 128;
    std::memset(row_codes + last_block, 0, (x.code_stride - last_block) * sizeof(int16_t));
    lanes.quantize(row(t), m.cols, m.group, x.layout, row_codes, row_scales, row_sums);
    std::memset(row_scales + m.groups(), 0, pad * sizeof(float));
    std::memset(row_sums + m.groups(), 0, pad * sizeof(float));
  });
  return x;
}

void multiply(const Options& options, const Matrix& m, const Inputs& x, int first, int last,
              float* y, size_t stride) {
  if (x.values) {
    for (int t = 0; t < x.rows; ++t) {
      multiply_floats(m, x.values + t * x.value_stride, first, last, y + t * stride);
    }
  } else if (x.rows == 1) {
    kernels(options.isa).vector(m, x, first, last, y);
  } else {
    kernels(options.isa).block(m, x, first, last, y, stride);
  }
}

int rows_per_task(const Matrix& m, int input_rows) {
  const size_t rows =
      std::max<size_t>(ThreadPool::kBundleBytes / product_bytes(m, 1, input_rows), 1);
  return static_cast<int>(round_up(rows, kBlockRows));
}

void multiply_all(Context& context, const Product* products, int count, const Inputs& x) {
  std::array<int, NormProject::kMaxParts> tasks{};
  int total = 0;
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    const int step = rows_per_task(products[i].matrix, x.rows);
    tasks[i] = (products[i].matrix.rows + step - 1) / step;
    total += tasks[i];
    bytes += product_bytes(products[i].matrix, products[i].matrix.rows, x.rows);
  }
  context.pool.run(total, bytes / std::max(total, 1), [&](int task) {
    int i = 0;
    while (task >= tasks[i]) task -= tasks[i++];
    const Product& p = products[i];
    const int step = rows_per_task(p.matrix, x.rows);
    const int first = task * step;
    const int last = std::min(first + step, p.matrix.rows);
    multiply(context.options, p.matrix, x, first, last, p.y + first, p.stride);
  });
}

}  // namespace mference::cpu
