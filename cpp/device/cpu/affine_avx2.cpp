// Affine products with AVX2: 4-bit and 8-bit codes in groups of 64.
//
// vpmaddwd on sixteen-bit codes and activations cannot saturate, where vpmaddubsw on bytes would for
// 8-bit codes.
#include <immintrin.h>

#include <utility>

#include "device/cpu/affine.h"

namespace mference::cpu {

namespace {

constexpr int kGroup = 64;
constexpr int kTile = 4;  // rows of activations whose sums stay in registers

using Floats = __m256;
using Integers = __m256i;

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

// The sums of kGroups (at most eight) groups of a row.
template <int kBits, int kGroups>
inline __m256i dot_groups(const uint8_t* row, const int16_t* codes) {
  __m256i d[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    // A page ahead: the hardware's own prefetcher stops where a small page ends.
    if (i % 2 == 0 || kBits == 8) {
      _mm_prefetch(chars(row + i * kGroup * kBits / 8) + 4096, _MM_HINT_T0);
    }
    d[i] = i < kGroups ? dot_group<kBits>(row, codes, i) : _mm256_setzero_si256();
  }
  return group_sums(d);
}

template <int kCount>
inline __m256 bf16_floats(const uint16_t* p) {
  alignas(16) uint16_t bits[8] = {};
  __builtin_memcpy(bits, p, kCount * sizeof(uint16_t));
  const __m128i loaded = _mm_load_si128(reinterpret_cast<const __m128i*>(bits));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(loaded), 16));
}

inline __m256 to_floats(__m256i d) {
  return _mm256_cvtepi32_ps(d);
}
inline __m256i broadcast(int32_t x) {
  return _mm256_set1_epi32(x);
}
inline __m256 broadcast(float x) {
  return _mm256_set1_ps(x);
}

// A code of each half of a word.
template <int kShift>
inline __m256i nibbles(__m256i words) {
  return _mm256_and_si256(_mm256_srli_epi32(words, kShift), broadcast(0x000f000f));
}
inline __m256 low_bf16(__m256i words) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}
inline __m256 high_bf16(__m256i words) {
  return _mm256_castsi256_ps(_mm256_and_si256(words, broadcast(-65536)));
}

inline void store_first(float* p, __m256 v, int count) {
  alignas(32) float all[8];
  _mm256_store_ps(all, v);
  __builtin_memcpy(p, all, count * sizeof(float));
}

// Word w of `out` holds 32-bit word w of eight rows, one row a lane. Row i starts at
// base + min(i, rows - 1) * stride, and has at least 2 * units bytes.
inline void transpose(const uint8_t* base, size_t stride, int rows, int units, __m256i* out) {
  __m256i z[8], s[8];
  for (int i = 0; i < 8; ++i) {
    const uint8_t* row = base + (i < rows ? i : rows - 1) * stride;
    if (units == 16) {
      z[i] = load(row);
    } else {
      z[i] = _mm256_setzero_si256();
      __builtin_memcpy(&z[i], row, 2 * units);
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

#include "device/cpu/affine_x86.inl"

}  // namespace

const AffineKernels kAvx2Affine = {layout, vector, block};

}  // namespace mference::cpu
