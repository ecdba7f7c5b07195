// The lane kernels for AVX-512.
#include <immintrin.h>

#include "device/cpu/lanes.h"

namespace mference::cpu {

namespace {

typedef float Lanes __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));

inline Lanes widen(Halves h) {
  return (Lanes)_mm512_cvtph_ps((__m256i)h);
}

inline Halves narrow(Lanes v) {
  return (Halves)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT);
}

#include "device/cpu/lanes.inl"

}  // namespace

const LaneKernels kAvx512Lanes = {norm,    quantize,   gate,   softcap,
                                  sum_exp, narrow_row, attend, merge};

}  // namespace mference::cpu
