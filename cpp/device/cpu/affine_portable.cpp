// Affine products for any processor and any format. The loops are plain so that a compiler can turn
// them into whatever multiply-accumulate of int16 the target has.
#include "base/numeric.h"
#include "device/cpu/affine.h"

namespace mference::cpu {

namespace {

constexpr int kMaxGroup = 128;

void unpack(const uint8_t* packed, int bits, int count, int16_t* codes) {
  if (bits == 4) {
    for (int i = 0; i < count / 2; ++i) {
      codes[2 * i] = packed[i] & 15;
      codes[2 * i + 1] = packed[i] >> 4;
    }
  } else if (bits == 8) {
    for (int i = 0; i < count; ++i) codes[i] = packed[i];
  } else {
    for (int i = 0; i < count; ++i) codes[i] = (packed[i / 4] >> (2 * (i % 4))) & 3;
  }
}

int32_t dot(const int16_t* a, const int16_t* b, int count) {
  int32_t total = 0;
  for (int i = 0; i < count; ++i) total += int32_t{a[i]} * b[i];
  return total;
}

struct Accumulator {
  float lane[8] = {};

  void add(int group, int32_t d, float scale, float bias, float x_scale, float x_sum) {
    const float product = static_cast<float>(d) * (scale * x_scale);
    lane[group % 8] += product + bias * x_sum;
  }
  float sum() const {
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  }
};

Layout natural(int, int) {
  return Layout::kNatural;
}

// Unpacks each group once for up to kTile rows of activations.
void block(const Matrix& m, const Inputs& x, int first, int last, float* y, size_t stride) {
  constexpr int kTile = 16;
  const size_t group_bytes = size_t(m.group) * m.bits / 8;
  for (int t0 = 0; t0 < x.rows; t0 += kTile) {
    const Inputs tile = x.from(t0);
    const int rows = tile.rows < kTile ? tile.rows : kTile;
    for (int r = first; r < last; ++r) {
      Accumulator acc[kTile];
      for (int g = 0; g < m.groups(); ++g) {
        int16_t codes[kMaxGroup];
        unpack(m.weight_row(r) + g * group_bytes, m.bits, m.group, codes);
        const float scale = bf16_to_float(m.scale_row(r)[g]);
        const float bias = bf16_to_float(m.bias_row(r)[g]);
        for (int t = 0; t < rows; ++t) {
          const int32_t d = dot(codes, tile.codes + t * tile.code_stride + g * m.group, m.group);
          acc[t].add(g, d, scale, bias, tile.scales[t * tile.group_stride + g],
                     tile.sums[t * tile.group_stride + g]);
        }
      }
      for (int t = 0; t < rows; ++t) y[(t0 + t) * stride + r - first] = acc[t].sum();
    }
  }
}

}  // namespace

void portable_vector(const Matrix& m, const Inputs& x, int first, int last, float* y) {
  Inputs row = x;
  row.rows = 1;
  block(m, row, first, last, y, 0);
}

const AffineKernels kPortableAffine = {natural, portable_vector, block};

}  // namespace mference::cpu
