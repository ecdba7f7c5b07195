// Affine products with AVX-512 VNNI: 4-bit and 8-bit codes in groups of 64.
//
// vpdpwssd multiplies sixteen-bit codes and activations and adds pairs into int32 lanes, exactly.
// One row of activations: the weights stream through as one sequence of bytes (two rows at once
// would halve the speed of memory for some widths), and a tree of shuffles turns the lanes of eight
// groups into eight sums. Many rows: thirty-two rows of weights are
// transposed and unpacked once, a lane is a weight row, and activations are broadcast, so nothing
// is left to reduce.
#include <immintrin.h>

#include <utility>

#include "device/cpu/affine.h"

namespace mference::cpu {

namespace {

constexpr int kGroup = 64;
constexpr int kPanelRows = 32;
constexpr int kTile = 8;          // rows of activations whose sums stay in registers
constexpr int kFewInputs = 3;     // rows of activations for which unpacking does not pay
constexpr int kBlockInputs = 64;  // rows of activations for one unpacking of the weights

Layout layout(int bits, int group) {
  if (group != kGroup) return Layout::kNatural;
  if (bits == 4) return Layout::kNibbles;
  return bits == 8 ? Layout::kBytes : Layout::kNatural;
}

inline __m256 bf16_floats(const uint16_t* p, __mmask8 mask) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(mask, p)), 16));
}

inline const char* chars(const uint8_t* p) {
  return reinterpret_cast<const char*>(p);
}

// A page ahead: the hardware's own prefetcher stops where a small page ends.
template <int kBytes>
inline void prefetch(const uint8_t* p) {
  for (int i = 0; i < kBytes; i += 64) _mm_prefetch(chars(p) + 4096 + i, _MM_HINT_T0);
}

// Lanes 0-7 hold parts of one group's dot product, lanes 8-15 of the next group's.
inline __m512i dot_nibbles(__m512i packed, const int16_t* x) {
  const __m512i nibble = _mm512_set1_epi16(15);
  __m512i d = _mm512_dpwssd_epi32(_mm512_setzero_si512(), _mm512_and_si512(packed, nibble),
                                  _mm512_load_si512(x));
  d = _mm512_dpwssd_epi32(d, _mm512_and_si512(_mm512_srli_epi16(packed, 4), nibble),
                          _mm512_load_si512(x + 32));
  d = _mm512_dpwssd_epi32(d, _mm512_and_si512(_mm512_srli_epi16(packed, 8), nibble),
                          _mm512_load_si512(x + 64));
  return _mm512_dpwssd_epi32(d, _mm512_srli_epi16(packed, 12), _mm512_load_si512(x + 96));
}

inline __m512i dot_bytes(__m512i packed, const int16_t* x) {
  const __m512i even = _mm512_and_si512(packed, _mm512_set1_epi16(255));
  const __m512i d = _mm512_dpwssd_epi32(_mm512_setzero_si512(), even, _mm512_load_si512(x));
  return _mm512_dpwssd_epi32(d, _mm512_srli_epi16(packed, 8), _mm512_load_si512(x + 32));
}

// Two groups of a row, or only the first of them.
template <int kBits, bool kBoth>
inline __m512i dot_pair(const uint8_t* row, const int16_t* x) {
  if constexpr (kBits == 4) {
    return dot_nibbles(kBoth ? _mm512_loadu_si512(row) : _mm512_maskz_loadu_epi8(0xffffffff, row),
                       x);
  } else {
    const __m512i a = dot_bytes(_mm512_loadu_si512(row), x);
    const __m512i b =
        kBoth ? dot_bytes(_mm512_loadu_si512(row + kGroup), x + kGroup) : _mm512_setzero_si512();
    return _mm512_add_epi32(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
  }
}

inline __m512i add_pairs32(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

inline __m512i add_pairs64(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// The sums of the eight groups in d.
inline __m256i group_sums(const __m512i* d) {
  const __m512i quarters = add_pairs64(add_pairs32(d[0], d[1]), add_pairs32(d[2], d[3]));
  const __m512i sums = _mm512_add_epi32(quarters, _mm512_shuffle_i32x4(quarters, quarters, 0xb1));
  // The even groups' sums lie in the lowest quarter, the odd ones' in the third.
  const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, sums));
}

inline __m256 add_groups(__m256 lanes, __m256i d, __m256 scale, __m256 bias, __m256 x_scale,
                         __m256 x_sum) {
  const __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(d), _mm256_mul_ps(scale, x_scale));
  return _mm256_add_ps(lanes, _mm256_add_ps(product, _mm256_mul_ps(bias, x_sum)));
}

inline float sum_lanes(__m256 lanes) {
  const __m128 a = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  const __m128 b = _mm_add_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

// Adds kGroups (at most eight) groups of a row.
template <int kBits, int kGroups>
inline __m256 add_some(__m256 lanes, const Matrix& m, const Inputs& x, int row, int g) {
  constexpr int kPairBytes = 2 * kGroup * kBits / 8;
  const uint8_t* packed = m.weight_row(row) + size_t(g) * kGroup * kBits / 8;
  const int16_t* codes = x.codes + g * kGroup;
  __m512i d[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    prefetch<kPairBytes>(packed + i * kPairBytes);
    if (2 * i + 1 < kGroups) {
      d[i] = dot_pair<kBits, true>(packed + i * kPairBytes, codes + i * 2 * kGroup);
    } else if (2 * i < kGroups) {
      d[i] = dot_pair<kBits, false>(packed + i * kPairBytes, codes + i * 2 * kGroup);
    } else {
      d[i] = _mm512_setzero_si512();
    }
  }
  constexpr __mmask8 kMask = (1 << kGroups) - 1;
  return add_groups(lanes, group_sums(d), bf16_floats(m.scale_row(row) + g, kMask),
                    bf16_floats(m.bias_row(row) + g, kMask), _mm256_load_ps(x.scales + g),
                    _mm256_load_ps(x.sums + g));
}

template <int kBits, int kRest>
void vector_of(const Matrix& m, const Inputs& x, int first, int last, float* y) {
  const int whole = m.groups() / 8 * 8;
  for (int r = first; r < last; ++r) {
    __m256 lanes = _mm256_setzero_ps();
    for (int g = 0; g < whole; g += 8) lanes = add_some<kBits, 8>(lanes, m, x, r, g);
    if constexpr (kRest > 0) lanes = add_some<kBits, kRest>(lanes, m, x, r, whole);
    y[r - first] = sum_lanes(lanes);
  }
}

// The groups left over by blocks of eight decide the code of the last block.
template <int kBits, int... kRests>
void vector_of(std::integer_sequence<int, kRests...>, const Matrix& m, const Inputs& x, int first,
               int last, float* y) {
  using Kernel = void (*)(const Matrix&, const Inputs&, int, int, float*);
  static constexpr Kernel kKernels[] = {vector_of<kBits, kRests>...};
  kKernels[m.groups() % 8](m, x, first, last, y);
}

constexpr std::make_integer_sequence<int, 8> kRests;

void vector(const Matrix& m, const Inputs& x, int first, int last, float* y) {
  if (x.layout == Layout::kNibbles) {
    vector_of<4>(kRests, m, x, first, last, y);
  } else if (x.layout == Layout::kBytes) {
    vector_of<8>(kRests, m, x, first, last, y);
  } else {
    portable_vector(m, x, first, last, y);
  }
}

// Word w of `out` holds 32-bit word w of sixteen rows, one row a lane. Row i starts at
// base + min(i, rows - 1) * stride, and has at least 2 * units bytes.
inline void transpose(const uint8_t* base, size_t stride, int rows, int units, __m512i* out) {
  const __mmask16 mask = static_cast<__mmask16>((1u << units) - 1);
  const auto row = [&](int i) {
    return _mm256_maskz_loadu_epi16(mask, base + (i < rows ? i : rows - 1) * stride);
  };
  __m512i z[8], s[8];
  for (int i = 0; i < 4; ++i) {
    z[i] = _mm512_inserti64x4(_mm512_castsi256_si512(row(i)), row(i + 4), 1);
    z[i + 4] = _mm512_inserti64x4(_mm512_castsi256_si512(row(i + 8)), row(i + 12), 1);
  }
  for (int i = 0; i < 8; i += 2) {
    s[i] = _mm512_unpacklo_epi32(z[i], z[i + 1]);
    s[i + 1] = _mm512_unpackhi_epi32(z[i], z[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    z[i] = _mm512_unpacklo_epi64(s[i], s[i + 2]);
    z[i + 1] = _mm512_unpackhi_epi64(s[i], s[i + 2]);
    z[i + 2] = _mm512_unpacklo_epi64(s[i + 1], s[i + 3]);
    z[i + 3] = _mm512_unpackhi_epi64(s[i + 1], s[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    out[i] = _mm512_shuffle_i32x4(z[i], z[i + 4], 0x88);
    out[i + 4] = _mm512_shuffle_i32x4(z[i], z[i + 4], 0xdd);
  }
}

// The weights of one group of thirty-two rows: for each plane and pair of the kNibbles layout, the
// two codes of each row.
struct Panel {
  __m512i codes[4][8][2];

  void unpack(const uint8_t* base, size_t stride, int rows, int half) {
    const __m512i nibbles = _mm512_set1_epi32(0x000f000f);
    __m512i words[8];
    transpose(base, stride, rows, 16, words);
    for (int w = 0; w < 8; ++w) {
      codes[0][w][half] = _mm512_and_si512(words[w], nibbles);
      codes[1][w][half] = _mm512_and_si512(_mm512_srli_epi32(words[w], 4), nibbles);
      codes[2][w][half] = _mm512_and_si512(_mm512_srli_epi32(words[w], 8), nibbles);
      codes[3][w][half] = _mm512_and_si512(_mm512_srli_epi32(words[w], 12), nibbles);
    }
  }
};

// Scales and biases of sixteen groups of thirty-two rows, one row a lane.
struct PanelScales {
  __m512 scale[16][2], bias[16][2];

  void load(const Matrix& m, int row, int rows, int g, int half) {
    const size_t stride = m.groups() * sizeof(uint16_t);
    const int units = m.groups() - g < 16 ? m.groups() - g : 16;
    spread(m.scale_row(row) + g, stride, rows, units, scale, half);
    spread(m.bias_row(row) + g, stride, rows, units, bias, half);
  }

  static void spread(const uint16_t* base, size_t stride, int rows, int units, __m512 (*out)[2],
                     int half) {
    __m512i words[8];
    transpose(reinterpret_cast<const uint8_t*>(base), stride, rows, units, words);
    for (int w = 0; w < 8; ++w) {
      out[2 * w][half] = _mm512_castsi512_ps(_mm512_slli_epi32(words[w], 16));
      out[2 * w + 1][half] =
          _mm512_castsi512_ps(_mm512_and_si512(words[w], _mm512_set1_epi32(-65536)));
    }
  }
};

inline __m512 add_groups(__m512 lanes, __m512i d, __m512 scale, __m512 bias, __m512 x_scale,
                         __m512 x_sum) {
  const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(d), _mm512_mul_ps(scale, x_scale));
  return _mm512_add_ps(lanes, _mm512_add_ps(product, _mm512_mul_ps(bias, x_sum)));
}

// The eight canonical lanes of each row of activations and of weights.
struct Lanes {
  __m512 lane[8][2];
};

template <int kRows>
void add_group(const Panel& panel, const PanelScales& scales, const Inputs& x, int g,
               Lanes* lanes) {
  const int32_t* pairs =
      reinterpret_cast<const int32_t*>(x.codes + (g / 2) * 2 * kGroup) + (g % 2) * 8;
  const size_t stride = x.code_stride / 2;
  __m512i d[kRows][2] = {};
  for (int plane = 0; plane < 4; ++plane) {
    for (int w = 0; w < 8; ++w) {
      const __m512i low = panel.codes[plane][w][0], high = panel.codes[plane][w][1];
#pragma GCC unroll 8
      for (int t = 0; t < kRows; ++t) {
        const __m512i pair = _mm512_set1_epi32(pairs[t * stride + plane * 16 + w]);
        d[t][0] = _mm512_dpwssd_epi32(d[t][0], low, pair);
        d[t][1] = _mm512_dpwssd_epi32(d[t][1], high, pair);
      }
    }
  }
  for (int t = 0; t < kRows; ++t) {
    const __m512 x_scale = _mm512_set1_ps(x.scales[t * x.group_stride + g]);
    const __m512 x_sum = _mm512_set1_ps(x.sums[t * x.group_stride + g]);
    for (int half = 0; half < 2; ++half) {
      __m512& lane = lanes[t].lane[g % 8][half];
      lane = add_groups(lane, d[t][half], scales.scale[g % 16][half], scales.bias[g % 16][half],
                        x_scale, x_sum);
    }
  }
}

void add_group_rows(const Panel& panel, const PanelScales& scales, const Inputs& x, int rows, int g,
                    Lanes* lanes) {
  switch (rows) {
    case 1:
      return add_group<1>(panel, scales, x, g, lanes);
    case 2:
      return add_group<2>(panel, scales, x, g, lanes);
    case 3:
      return add_group<3>(panel, scales, x, g, lanes);
    case 4:
      return add_group<4>(panel, scales, x, g, lanes);
    case 5:
      return add_group<5>(panel, scales, x, g, lanes);
    case 6:
      return add_group<6>(panel, scales, x, g, lanes);
    case 7:
      return add_group<7>(panel, scales, x, g, lanes);
    default:
      return add_group<8>(panel, scales, x, g, lanes);
  }
}

inline __m512 sum_lanes(const Lanes& lanes, int half) {
  const auto l = [&](int i) { return lanes.lane[i][half]; };
  const __m512 even = _mm512_add_ps(_mm512_add_ps(l(0), l(4)), _mm512_add_ps(l(2), l(6)));
  const __m512 odd = _mm512_add_ps(_mm512_add_ps(l(1), l(5)), _mm512_add_ps(l(3), l(7)));
  return _mm512_add_ps(even, odd);
}

// The same columns of the next panel, which the hardware does not see coming.
inline void prefetch_rows(const uint8_t* p, size_t stride) {
  for (int i = 0; i < kPanelRows; ++i) _mm_prefetch(chars(p + i * stride), _MM_HINT_T1);
}

// The next panel's scales or biases, which lie back to back.
inline void prefetch_scales(const uint16_t* p, int groups) {
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(p);
  for (size_t i = 0; i < size_t(kPanelRows) * groups * sizeof(uint16_t); i += 64) {
    _mm_prefetch(chars(bytes + i), _MM_HINT_T1);
  }
}

// Up to thirty-two rows of weights times up to kBlockInputs rows of activations.
void multiply_panel(const Matrix& m, const Inputs& x, int inputs, int row, int rows, float* y,
                    size_t stride) {
  alignas(64) Lanes lanes[kBlockInputs];
  alignas(64) Panel panel;
  alignas(64) PanelScales scales;
  __builtin_memset(static_cast<void*>(lanes), 0, inputs * sizeof(Lanes));
  const int halves = rows > 16 ? 2 : 1;
  if (halves == 1) {
    __builtin_memset(static_cast<void*>(&panel), 0, sizeof(panel));
    __builtin_memset(static_cast<void*>(&scales), 0, sizeof(scales));
  }
  prefetch_scales(m.scale_row(row + kPanelRows), m.groups());
  prefetch_scales(m.bias_row(row + kPanelRows), m.groups());
  for (int g = 0; g < m.groups(); ++g) {
    if (g % 2 == 0) prefetch_rows(m.weight_row(row + kPanelRows) + g * kGroup / 2, m.row_bytes());
    for (int half = 0; half < halves; ++half) {
      const int here = rows - 16 * half < 16 ? rows - 16 * half : 16;
      if (g % 16 == 0) scales.load(m, row + 16 * half, here, g, half);
      panel.unpack(m.weight_row(row + 16 * half) + g * kGroup / 2, m.row_bytes(), here, half);
    }
    for (int t = 0; t < inputs; t += kTile) {
      const int tile = inputs - t < kTile ? inputs - t : kTile;
      add_group_rows(panel, scales, x.from(t), tile, g, lanes + t);
    }
  }
  for (int t = 0; t < inputs; ++t) {
    for (int half = 0; half < halves; ++half) {
      const int here = rows - 16 * half < 16 ? rows - 16 * half : 16;
      _mm512_mask_storeu_ps(y + t * stride + 16 * half, static_cast<__mmask16>((1u << here) - 1),
                            sum_lanes(lanes[t], half));
    }
  }
}

// Few rows of activations, or bytes: a few rows of weights stay in the nearest cache for all.
void vectors(const Matrix& m, const Inputs& x, int first, int last, float* y, size_t stride) {
  constexpr int kStep = 8;
  for (int r = first; r < last; r += kStep) {
    const int end = r + kStep < last ? r + kStep : last;
    for (int t = 0; t < x.rows; ++t) vector(m, x.from(t), r, end, y + t * stride + (r - first));
  }
}

void block(const Matrix& m, const Inputs& x, int first, int last, float* y, size_t stride) {
  if (x.layout != Layout::kNibbles || x.rows <= kFewInputs) {
    vectors(m, x, first, last, y, stride);
    return;
  }
  for (int r = first; r < last; r += kPanelRows) {
    const int rows = last - r < kPanelRows ? last - r : kPanelRows;
    for (int t = 0; t < x.rows; t += kBlockInputs) {
      const int inputs = x.rows - t < kBlockInputs ? x.rows - t : kBlockInputs;
      multiply_panel(m, x.from(t), inputs, r, rows, y + t * stride + (r - first), stride);
    }
  }
}

}  // namespace

const AffineKernels kAvx512Affine = {layout, vector, block};

}  // namespace mference::cpu
