// The lane kernels for AVX2 and F16C.
#include <immintrin.h>

#include "device/cpu/lanes.h"

namespace mference::cpu {

namespace {

constexpr int kPartLanes = 8;

inline void widen(const uint16_t* h, float* out) {
  for (int i = 0; i < 16; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(h + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
  }
}

inline void narrow(const float* x, uint16_t* out) {
  for (int i = 0; i < 16; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
  }
}

#include "device/cpu/lanes.inl"

}  // namespace

const LaneKernels kAvx2Lanes = {norm, quantize, gate,    open_gate,  convolve, delta,
                                dot,  softcap,  sum_exp, narrow_row, attend,   merge};

}  // namespace mference::cpu
