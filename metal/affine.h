// Products with affine-quantized matrices, which are never expanded in memory.
//
// A lane takes 16 columns at a time: `bits` 16-bit words that lie in one group. The code in bit
// bits * j of a word is masked but not shifted; its column of x is divided by 2^(bits * j) instead,
// once for all rows.
#pragma once

#include "common.h"

#define COLUMNS 16

// Rows of a matrix, and the words of their parts.
struct Matrix {
  device const ushort* weight;
  device const ushort* scales;
  device const ushort* biases;
};

// Where a matrix lies inside an expert's blob.
inline Matrix part_of(device const uchar* blob, constant PartOffsets& part) {
  Matrix m;
  m.weight = (device const ushort*)(blob + part.weight);
  m.scales = (device const ushort*)(blob + part.scales);
  m.biases = (device const ushort*)(blob + part.biases);
  return m;
}

template <int kWidth>
inline void load_codes(device const ushort* from, bool words, thread ushort* codes) {
  if (words) {
    device const uint* pairs = (device const uint*)from;
    UNROLL
    for (int i = 0; i < kWidth / 2; ++i) {
      const uint pair = pairs[i];
      codes[2 * i] = ushort(pair);
      codes[2 * i + 1] = ushort(pair >> 16);
    }
  } else {
    UNROLL
    for (int i = 0; i < kWidth; ++i) codes[i] = from[i];
  }
}

// ---- few rows of activations ----

// For kGemvRows rows of `m` from `row` and kTokens rows of activations: sums[r * kTokens + t] is
// row r times x[t], reduced over the simdgroup. With a norm, x is multiplied by its weight first
// and the sums by 1 / sqrt(mean(x^2) + eps), so the norm costs no pass of its own. Rows from
// `rows` on repeat the last one.
template <int kWidth, int kTokens>
inline void multiply_rows(Matrix m, int group, bool words, int cols, int row, int rows,
                          device const float* thread* x, device const ushort* norm, float eps,
                          uint lane, thread float* sums) {
  constexpr int kPerWord = 16 / kWidth;
  constexpr ushort kMask = (1 << kWidth) - 1;
  const int row_words = cols * kWidth / 16;
  const int groups = cols / group;
  device const ushort* weight[kGemvRows];
  device const ushort* scales[kGemvRows];
  device const ushort* biases[kGemvRows];
  UNROLL
  for (int r = 0; r < kGemvRows; ++r) {
    const ulong own = min(row + r, rows - 1);
    weight[r] = m.weight + own * row_words;
    scales[r] = m.scales + own * groups;
    biases[r] = m.biases + own * groups;
  }
  float squares[kTokens];
  UNROLL
  for (int t = 0; t < kTokens; ++t) squares[t] = 0.0f;
  UNROLL
  for (int i = 0; i < kGemvRows * kTokens; ++i) sums[i] = 0.0f;

  for (int c = int(lane) * COLUMNS; c < cols; c += kLanes * COLUMNS) {
    float own[kTokens][COLUMNS];
    float total[kTokens];
    UNROLL
    for (int t = 0; t < kTokens; ++t) {
      UNROLL
      for (int i = 0; i < COLUMNS; i += 4) {
        float4 v = *(device const float4*)(x[t] + c + i);
        if (kNorm) {
          squares[t] += dot(v, v);
          v = v * float4(bf16(norm[c + i]), bf16(norm[c + i + 1]), bf16(norm[c + i + 2]),
                         bf16(norm[c + i + 3]));
        }
        own[t][i] = v.x;
        own[t][i + 1] = v.y;
        own[t][i + 2] = v.z;
        own[t][i + 3] = v.w;
      }
      total[t] = 0.0f;
      UNROLL
      for (int i = 0; i < COLUMNS; ++i) {
        total[t] += own[t][i];
        own[t][i] *= 1.0f / float(1 << (kWidth * (i % kPerWord)));
      }
    }
    const int g = c / group;
    UNROLL
    for (int r = 0; r < kGemvRows; ++r) {
      ushort codes[kWidth];
      load_codes<kWidth>(weight[r] + c * kWidth / 16, words, codes);
      const float scale = bf16(scales[r][g]);
      const float bias = bf16(biases[r][g]);
      UNROLL
      for (int t = 0; t < kTokens; ++t) {
        float product = 0.0f;
        UNROLL
        for (int i = 0; i < COLUMNS; ++i) {
          const ushort code = codes[i / kPerWord] & ushort(kMask << (kWidth * (i % kPerWord)));
          product = fma(own[t][i], float(code), product);
        }
        sums[r * kTokens + t] += scale * product + bias * total[t];
      }
    }
  }
  UNROLL
  for (int t = 0; t < kTokens; ++t) {
    const float factor = kNorm ? rsqrt(simd_sum(squares[t]) / float(cols) + eps) : 1.0f;
    UNROLL
    for (int r = 0; r < kGemvRows; ++r) {
      sums[r * kTokens + t] = simd_sum(sums[r * kTokens + t]) * factor;
    }
  }
}

template <int kTokens>
inline void multiply(Matrix m, int bits, int group, bool words, int cols, int row, int rows,
                     device const float* thread* x, device const ushort* norm, float eps, uint lane,
                     thread float* sums) {
  if (bits == 4) {
    multiply_rows<4, kTokens>(m, group, words, cols, row, rows, x, norm, eps, lane, sums);
  } else if (bits == 8) {
    multiply_rows<8, kTokens>(m, group, words, cols, row, rows, x, norm, eps, lane, sums);
  } else {
    multiply_rows<2, kTokens>(m, group, words, cols, row, rows, x, norm, eps, lane, sums);
  }
}

// ---- many rows of activations ----

// kTileTokens rows of activations by kTileRows rows of weights in kTileThreads threads, 32 columns
// at a time. Weights are expanded to float16, activations stay float32 (their range exceeds
// float16), sums are float32. Both tiles are stored as 8 x 8 blocks, each contiguous.
#define TILE_COLUMNS 32
#define TILE_BLOCKS (TILE_COLUMNS / 8)
// Size of the one threadgroup array: both tiles, and later the sums in their place. Its type makes it
// lie at 16 bytes.
#define TILE_VECTORS (kTileTokens * kTileRows / 4)

template <int kWidth>
inline void expand_codes(device const ushort* codes_at, bool words, float scale, float bias,
                         thread half* weights) {
  constexpr int kPerWord = 16 / kWidth;
  ushort codes[kWidth];
  load_codes<kWidth>(codes_at, words, codes);
  UNROLL
  for (int i = 0; i < COLUMNS; ++i) {
    const ushort code = (codes[i / kPerWord] >> (kWidth * (i % kPerWord))) & ((1 << kWidth) - 1);
    weights[i] = half(fma(scale, float(code), bias));
  }
}

// COLUMNS weights of a row from `column` on, which is a multiple of COLUMNS.
inline void expand(Matrix row, int bits, int group, bool words, int column, thread half* weights) {
  device const ushort* codes = row.weight + column * bits / 16;
  const float scale = bf16(row.scales[column / group]);
  const float bias = bf16(row.biases[column / group]);
  if (bits == 4) {
    expand_codes<4>(codes, words, scale, bias, weights);
  } else if (bits == 8) {
    expand_codes<8>(codes, words, scale, bias, weights);
  } else {
    expand_codes<2>(codes, words, scale, bias, weights);
  }
}

// Eight activations, times their norm's weight if there is a norm; returns their sum of squares.
inline float load_activations(device const float* x, device const ushort* norm, thread float* own) {
  const float4 low = *(device const float4*)x, high = *(device const float4*)(x + 4);
  UNROLL
  for (int i = 0; i < 4; ++i) {
    own[i] = kNorm ? low[i] * bf16(norm[i]) : low[i];
    own[i + 4] = kNorm ? high[i] * bf16(norm[i + 4]) : high[i];
  }
  return kNorm ? dot(low, low) + dot(high, high) : 0.0f;
}

// 1 / sqrt(mean(x^2) + eps) of each row, from the squares of the four threads that loaded it.
inline void finish_factors(float squares, int cols, float eps, uint thread_index,
                           threadgroup float* factors) {
  if (!kNorm) return;
  squares += simd_shuffle_xor(squares, 1);
  squares += simd_shuffle_xor(squares, 2);
  if (thread_index % 4 == 0) factors[thread_index / 4] = rsqrt(squares / float(cols) + eps);
}

#include "tensor.h"

// scratch[t * kTileRows + n] = x row t times weight row n. Each thread names the row of weights
// that it stages (thread / 2 of the tile) and the row of activations that it stages (thread / 4).
// With a norm, x is multiplied by its weight and factors[t] is what the sums still lack.
inline void multiply_tile(Matrix row, int bits, int group, bool words, int cols,
                          device const float* x, device const ushort* norm, float eps,
                          uint thread_index, uint simdgroup, threadgroup float* scratch,
                          threadgroup float* factors) {
#if defined(__HAVE_TENSOR__)
  if (kTensor) {
    multiply_tile_tensor(row, bits, group, words, cols, x, norm, eps, thread_index, scratch,
                         factors);
    return;
  }
#endif
  threadgroup float* xs = scratch;
  threadgroup half* ws = (threadgroup half*)(scratch + kTileTokens * TILE_COLUMNS);
  simdgroup_float8x8 sums[2][4];
  UNROLL
  for (int i = 0; i < 2; ++i) {
    UNROLL
    for (int j = 0; j < 4; ++j) sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  const int n = int(thread_index) / 2, n_column = int(thread_index) % 2 * COLUMNS;
  const int t = int(thread_index) / 4, t_block = int(thread_index) % 4;
  threadgroup half* w_to = ws + (n / 8 * TILE_BLOCKS + n_column / 8) * 64 + n % 8 * 8;
  threadgroup float* x_to = xs + (t / 8 * TILE_BLOCKS + t_block) * 64 + t % 8 * 8;
  const int first_token = int(simdgroup) % 2 * 2, first_row = int(simdgroup) / 2 * 4;  // in blocks
  float squares = 0.0f;

  for (int c = 0; c < cols; c += TILE_COLUMNS) {
    // Loads and conversions overlap the products of the tile before.
    half weights[COLUMNS];
    expand(row, bits, group, words, c + n_column, weights);
    float own[8];
    squares += load_activations(x + c + t_block * 8, norm + c + t_block * 8, own);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL
    for (int i = 0; i < COLUMNS; i += 4) {
      *(threadgroup half4*)(w_to + i / 8 * 64 + i % 8) =
          half4(weights[i], weights[i + 1], weights[i + 2], weights[i + 3]);
    }
    *(threadgroup float4*)x_to = float4(own[0], own[1], own[2], own[3]);
    *(threadgroup float4*)(x_to + 4) = float4(own[4], own[5], own[6], own[7]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL
    for (int k = 0; k < TILE_BLOCKS; ++k) {
      simdgroup_float8x8 a[2];
      simdgroup_half8x8 b[4];
      UNROLL
      for (int i = 0; i < 2; ++i) {
        simdgroup_load(a[i], xs + ((first_token + i) * TILE_BLOCKS + k) * 64, 8);
      }
      UNROLL
      for (int j = 0; j < 4; ++j) {
        simdgroup_load(b[j], ws + ((first_row + j) * TILE_BLOCKS + k) * 64, 8, ulong2(0, 0), true);
      }
      UNROLL
      for (int i = 0; i < 2; ++i) {
        UNROLL
        for (int j = 0; j < 4; ++j) {
          simdgroup_multiply_accumulate(sums[i][j], a[i], b[j], sums[i][j]);
        }
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  UNROLL
  for (int i = 0; i < 2; ++i) {
    UNROLL
    for (int j = 0; j < 4; ++j) {
      simdgroup_store(sums[i][j], scratch + (first_token + i) * 8 * kTileRows + (first_row + j) * 8,
                      kTileRows);
    }
  }
  finish_factors(squares, cols, eps, thread_index, factors);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Row `index` of a matrix.
inline Matrix row_of(Matrix m, int bits, int group, int cols, int index) {
  const ulong own = index;
  m.weight += own * (cols * bits / 16);
  m.scales += own * (cols / group);
  m.biases += own * (cols / group);
  return m;
}
