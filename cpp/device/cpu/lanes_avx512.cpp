// The lane kernels for AVX-512.
#include <immintrin.h>

#include "device/cpu/lanes.h"

namespace mference::cpu {

namespace {

constexpr int kPartLanes = 16;

inline void widen(const uint16_t* h, float* out) {
  _mm512_storeu_ps(out, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(h))));
}

inline void narrow(const float* x, uint16_t* out) {
  const __m256i half = _mm512_cvtps_ph(_mm512_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), half);
}

#include "device/cpu/lanes.inl"

}  // namespace

const LaneKernels kAvx512Lanes = {norm, quantize, gate,    open_gate,  convolve, delta,
                                  dot,  softcap,  sum_exp, narrow_row, attend,   merge};

}  // namespace mference::cpu
