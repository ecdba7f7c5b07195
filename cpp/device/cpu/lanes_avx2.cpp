// The lane kernels for AVX2 and F16C.
#include <immintrin.h>

#include "device/cpu/lanes.h"

namespace mference::cpu {

namespace {

typedef float Lanes __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));

inline Lanes widen(Halves h) {
  __m128i half[2];
  __m256 wide[2];
  Lanes v;
  __builtin_memcpy(half, &h, sizeof(h));
  for (int i = 0; i < 2; ++i) wide[i] = _mm256_cvtph_ps(half[i]);
  __builtin_memcpy(&v, wide, sizeof(v));
  return v;
}

inline Halves narrow(Lanes v) {
  __m256 wide[2];
  __m128i half[2];
  Halves h;
  __builtin_memcpy(wide, &v, sizeof(v));
  for (int i = 0; i < 2; ++i) half[i] = _mm256_cvtps_ph(wide[i], _MM_FROUND_TO_NEAREST_INT);
  __builtin_memcpy(&h, half, sizeof(h));
  return h;
}

#include "device/cpu/lanes.inl"

}  // namespace

const LaneKernels kAvx2Lanes = {norm, quantize, gate, softcap, sum_exp, narrow_row, attend, merge};

}  // namespace mference::cpu
