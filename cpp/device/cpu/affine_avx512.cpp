// Affine products with AVX-512 VNNI: 4-bit and 8-bit codes in groups of 64.
//
// vpdpwssd multiplies sixteen-bit codes and activations and adds pairs into int32 lanes, exactly.
#include <immintrin.h>

#include <utility>

#include "device/cpu/affine.h"

namespace mference::cpu {

namespace {

constexpr int kGroup = 64;
constexpr int kTile = 8;  // rows of activations whose sums stay in registers

using Floats = __m512;
using Integers = __m512i;

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

// The sums of kGroups (at most eight) groups of a row.
template <int kBits, int kGroups>
inline __m256i dot_groups(const uint8_t* packed, const int16_t* codes) {
  constexpr int kPairBytes = 2 * kGroup * kBits / 8;
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
  return group_sums(d);
}

template <int kCount>
inline __m256 bf16_floats(const uint16_t* p) {
  constexpr __mmask8 kMask = (1 << kCount) - 1;
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(kMask, p)), 16));
}

inline __m256 to_floats(__m256i d) {
  return _mm256_cvtepi32_ps(d);
}
inline __m512 to_floats(__m512i d) {
  return _mm512_cvtepi32_ps(d);
}
inline __m512i broadcast(int32_t x) {
  return _mm512_set1_epi32(x);
}
inline __m512 broadcast(float x) {
  return _mm512_set1_ps(x);
}

inline __m512i add_products(__m512i d, __m512i codes, __m512i x) {
  return _mm512_dpwssd_epi32(d, codes, x);
}

// A code of each half of a word.
template <int kShift>
inline __m512i nibbles(__m512i words) {
  return _mm512_and_si512(_mm512_srli_epi32(words, kShift), broadcast(0x000f000f));
}
inline __m512 low_bf16(__m512i words) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
inline __m512 high_bf16(__m512i words) {
  return _mm512_castsi512_ps(_mm512_and_si512(words, broadcast(-65536)));
}

inline void store_first(float* p, __m512 v, int count) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), v);
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

#include "device/cpu/affine_x86.inl"

}  // namespace

const AffineKernels kAvx512Affine = {layout, vector, block};

}  // namespace mference::cpu
