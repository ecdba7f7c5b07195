// The lane kernels for any processor: compiled for the baseline of the target.
#include "base/numeric.h"
#include "device/cpu/lanes.h"

namespace mference::cpu {

namespace {

typedef float Lanes __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));

inline Lanes widen(Halves h) {
  Lanes v;
  for (int i = 0; i < 16; ++i) v[i] = fp16_to_float(h[i]);
  return v;
}

inline Halves narrow(Lanes v) {
  Halves h;
  for (int i = 0; i < 16; ++i) h[i] = float_to_fp16(v[i]);
  return h;
}

#include "device/cpu/lanes.inl"

}  // namespace

const LaneKernels kPortableLanes = {norm,    quantize,   gate,   softcap,
                                    sum_exp, narrow_row, attend, merge};

const LaneKernels& lane_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return kAvx512Lanes;
  if (isa == Isa::kAvx2) return kAvx2Lanes;
#endif
  (void)isa;
  return kPortableLanes;
}

}  // namespace mference::cpu
