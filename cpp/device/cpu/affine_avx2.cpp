// Affine products with AVX2: 4-bit and 8-bit codes in groups of 64.
//
// The same plan as with AVX-512. vpmaddwd on sixteen-bit codes and activations cannot saturate,
// where vpmaddubsw on bytes would for 8-bit codes.
#include <immintrin.h>

#include <utility>

#include "device/cpu/affine.h"

namespace mference::cpu {

namespace {

constexpr int kGroup = 64;
constexpr int kPanelRows = 16;
constexpr int kTile = 4;          // rows of activations whose sums stay in registers
constexpr int kFewInputs = 3;     // rows of activations for which unpacking does not pay
constexpr int kBlockInputs = 64;  // rows of activations for one unpacking of the weights

Layout layout(int bits, int group) {
  if (group != kGroup) return Layout::kNatural;
  if (bits == 4) return Layout::kNibbles;
  return bits == 8 ? Layout::kBytes : Layout::kNatural;
}

inline const char* chars(const uint8_t* p) {
  return reinterpret_cast<const char*>(p);
}

inline __m256i load(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

inline __m256i add_products(__m256i d, __m256i codes, __m256i x) {
  return _mm256_add_epi32(d, _mm256_madd_epi16(codes, x));
}

// Eight parts of one group's dot product. `half` is the group's place in its block of two.
inline __m256i dot_nibbles(__m256i packed, const int16_t* x) {
  const __m256i nibble = _mm256_set1_epi16(15);
  __m256i d = _mm256_madd_epi16(_mm256_and_si256(packed, nibble), load(x));
  d = add_products(d, _mm256_and_si256(_mm256_srli_epi16(packed, 4), nibble), load(x + 32));
  d = add_products(d, _mm256_and_si256(_mm256_srli_epi16(packed, 8), nibble), load(x + 64));
  return add_products(d, _mm256_srli_epi16(packed, 12), load(x + 96));
}

inline __m256i dot_bytes(__m256i packed, const int16_t* x) {
  const __m256i d = _mm256_madd_epi16(_mm256_and_si256(packed, _mm256_set1_epi16(255)), load(x));
  return add_products(d, _mm256_srli_epi16(packed, 8), load(x + 32));
}

template <int kBits>
inline __m256i dot_group(const uint8_t* row, const int16_t* codes, int g) {
  if constexpr (kBits == 4) {
    return dot_nibbles(load(row + g * 32), codes + (g / 2) * 2 * kGroup + (g % 2) * 16);
  } else {
    const int16_t* x = codes + g * kGroup;
    return _mm256_add_epi32(dot_bytes(load(row + g * 64), x),
                            dot_bytes(load(row + g * 64 + 32), x + 16));
  }
}

// Lane i is the sum of d[i].
inline __m256i group_sums(const __m256i* d) {
  const __m256i low =
      _mm256_hadd_epi32(_mm256_hadd_epi32(d[0], d[1]), _mm256_hadd_epi32(d[2], d[3]));
  const __m256i high =
      _mm256_hadd_epi32(_mm256_hadd_epi32(d[4], d[5]), _mm256_hadd_epi32(d[6], d[7]));
  return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                          _mm256_permute2x128_si256(low, high, 0x31));
}

inline __m256 bf16_floats(const uint16_t* p, int count) {
  alignas(16) uint16_t bits[8] = {};
  __builtin_memcpy(bits, p, count * sizeof(uint16_t));
  const __m128i loaded = _mm_load_si128(reinterpret_cast<const __m128i*>(bits));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(loaded), 16));
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
inline __m256 add_some(__m256 lanes, const Matrix& m, const Inputs& x, int r, int g) {
  const uint8_t* row = m.weight_row(r);
  __m256i d[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    // A page ahead: the hardware's own prefetcher stops where a small page ends.
    if (i % 2 == 0 || kBits == 8) {
      _mm_prefetch(chars(row + (g + i) * kGroup * kBits / 8) + 4096, _MM_HINT_T0);
    }
    d[i] = i < kGroups ? dot_group<kBits>(row, x.codes, g + i) : _mm256_setzero_si256();
  }
  return add_groups(lanes, group_sums(d), bf16_floats(m.scale_row(r) + g, kGroups),
                    bf16_floats(m.bias_row(r) + g, kGroups), _mm256_load_ps(x.scales + g),
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

// Word w of `out` holds 32-bit word w of eight rows, one row a lane. Row i starts at
// base + min(i, rows - 1) * stride, and has at least `bytes` bytes.
inline void transpose(const uint8_t* base, size_t stride, int rows, int bytes, __m256i* out) {
  __m256i z[8], s[8];
  for (int i = 0; i < 8; ++i) {
    const uint8_t* row = base + (i < rows ? i : rows - 1) * stride;
    if (bytes == 32) {
      z[i] = load(row);
    } else {
      z[i] = _mm256_setzero_si256();
      __builtin_memcpy(&z[i], row, bytes);
    }
  }
  for (int i = 0; i < 8; i += 2) {
    s[i] = _mm256_unpacklo_epi32(z[i], z[i + 1]);
    s[i + 1] = _mm256_unpackhi_epi32(z[i], z[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    z[i] = _mm256_unpacklo_epi64(s[i], s[i + 2]);
    z[i + 1] = _mm256_unpackhi_epi64(s[i], s[i + 2]);
    z[i + 2] = _mm256_unpacklo_epi64(s[i + 1], s[i + 3]);
    z[i + 3] = _mm256_unpackhi_epi64(s[i + 1], s[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    out[i] = _mm256_permute2x128_si256(z[i], z[i + 4], 0x20);
    out[i + 4] = _mm256_permute2x128_si256(z[i], z[i + 4], 0x31);
  }
}

// The weights of one group of sixteen rows: for each plane and pair of the kNibbles layout, the two
// codes of each row.
struct Panel {
  __m256i codes[4][8][2];

  void unpack(const uint8_t* base, size_t stride, int rows, int half) {
    const __m256i nibbles = _mm256_set1_epi32(0x000f000f);
    __m256i words[8];
    transpose(base, stride, rows, 32, words);
    for (int w = 0; w < 8; ++w) {
      codes[0][w][half] = _mm256_and_si256(words[w], nibbles);
      codes[1][w][half] = _mm256_and_si256(_mm256_srli_epi32(words[w], 4), nibbles);
      codes[2][w][half] = _mm256_and_si256(_mm256_srli_epi32(words[w], 8), nibbles);
      codes[3][w][half] = _mm256_and_si256(_mm256_srli_epi32(words[w], 12), nibbles);
    }
  }
};

// Scales and biases of sixteen groups of sixteen rows, one row a lane.
struct PanelScales {
  __m256 scale[16][2], bias[16][2];

  void load(const Matrix& m, int row, int rows, int g, int half) {
    const size_t stride = m.groups() * sizeof(uint16_t);
    const int units = m.groups() - g < 16 ? m.groups() - g : 16;
    spread(m.scale_row(row) + g, stride, rows, units, scale, half);
    spread(m.bias_row(row) + g, stride, rows, units, bias, half);
  }

  static void spread(const uint16_t* base, size_t stride, int rows, int units, __m256 (*out)[2],
                     int half) {
    __m256i words[8];
    transpose(reinterpret_cast<const uint8_t*>(base), stride, rows, 2 * units, words);
    for (int w = 0; w < 8; ++w) {
      out[2 * w][half] = _mm256_castsi256_ps(_mm256_slli_epi32(words[w], 16));
      out[2 * w + 1][half] =
          _mm256_castsi256_ps(_mm256_and_si256(words[w], _mm256_set1_epi32(-65536)));
    }
  }
};

// The eight canonical lanes of each row of activations and of weights.
struct Lanes {
  __m256 lane[8][2];
};

template <int kRows>
void add_group(const Panel& panel, const PanelScales& scales, const Inputs& x, int g,
               Lanes* lanes) {
  const int32_t* pairs =
      reinterpret_cast<const int32_t*>(x.codes + (g / 2) * 2 * kGroup) + (g % 2) * 8;
  const size_t stride = x.code_stride / 2;
  __m256i d[kRows][2] = {};
  for (int plane = 0; plane < 4; ++plane) {
    for (int w = 0; w < 8; ++w) {
      const __m256i low = panel.codes[plane][w][0], high = panel.codes[plane][w][1];
#pragma GCC unroll 4
      for (int t = 0; t < kRows; ++t) {
        const __m256i pair = _mm256_set1_epi32(pairs[t * stride + plane * 16 + w]);
        d[t][0] = add_products(d[t][0], low, pair);
        d[t][1] = add_products(d[t][1], high, pair);
      }
    }
  }
  for (int t = 0; t < kRows; ++t) {
    const __m256 x_scale = _mm256_set1_ps(x.scales[t * x.group_stride + g]);
    const __m256 x_sum = _mm256_set1_ps(x.sums[t * x.group_stride + g]);
    for (int half = 0; half < 2; ++half) {
      __m256& lane = lanes[t].lane[g % 8][half];
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
    default:
      return add_group<4>(panel, scales, x, g, lanes);
  }
}

inline __m256 sum_lanes(const Lanes& lanes, int half) {
  const auto l = [&](int i) { return lanes.lane[i][half]; };
  const __m256 even = _mm256_add_ps(_mm256_add_ps(l(0), l(4)), _mm256_add_ps(l(2), l(6)));
  const __m256 odd = _mm256_add_ps(_mm256_add_ps(l(1), l(5)), _mm256_add_ps(l(3), l(7)));
  return _mm256_add_ps(even, odd);
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

// Up to sixteen rows of weights times up to kBlockInputs rows of activations.
void multiply_panel(const Matrix& m, const Inputs& x, int inputs, int row, int rows, float* y,
                    size_t stride) {
  alignas(64) Lanes lanes[kBlockInputs];
  alignas(64) Panel panel;
  alignas(64) PanelScales scales;
  __builtin_memset(static_cast<void*>(lanes), 0, inputs * sizeof(Lanes));
  const int halves = rows > 8 ? 2 : 1;
  if (halves == 1) {
    __builtin_memset(static_cast<void*>(&panel), 0, sizeof(panel));
    __builtin_memset(static_cast<void*>(&scales), 0, sizeof(scales));
  }
  prefetch_scales(m.scale_row(row + kPanelRows), m.groups());
  prefetch_scales(m.bias_row(row + kPanelRows), m.groups());
  for (int g = 0; g < m.groups(); ++g) {
    if (g % 2 == 0) prefetch_rows(m.weight_row(row + kPanelRows) + g * kGroup / 2, m.row_bytes());
    for (int half = 0; half < halves; ++half) {
      const int here = rows - 8 * half < 8 ? rows - 8 * half : 8;
      if (g % 16 == 0) scales.load(m, row + 8 * half, here, g, half);
      panel.unpack(m.weight_row(row + 8 * half) + g * kGroup / 2, m.row_bytes(), here, half);
    }
    for (int t = 0; t < inputs; t += kTile) {
      const int tile = inputs - t < kTile ? inputs - t : kTile;
      add_group_rows(panel, scales, x.from(t), tile, g, lanes + t);
    }
  }
  for (int t = 0; t < inputs; ++t) {
    alignas(64) float out[kPanelRows];
    _mm256_store_ps(out, sum_lanes(lanes[t], 0));
    _mm256_store_ps(out + 8, sum_lanes(lanes[t], 1));
    __builtin_memcpy(y + t * stride, out, rows * sizeof(float));
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

const AffineKernels kAvx2Affine = {layout, vector, block};

}  // namespace mference::cpu
