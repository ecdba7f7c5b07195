// The lane kernels for any processor: compiled for the baseline of the target.
#include <bit>

#include "base/numeric.h"
#include "device/cpu/lanes.h"

namespace mference::cpu {

namespace {

constexpr int kPartLanes = 4;

// What fp16_to_float() does, in a form that compilers turn into vector instructions.
inline void widen(const uint16_t* h, float* out) {
  for (int i = 0; i < 16; ++i) {
    const uint32_t magnitude = uint32_t{h[i]} & 0x7fffu;
    const uint32_t finite =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
    const uint32_t special = (magnitude << 13) | 0x7f800000u;
    const uint32_t sign = (uint32_t{h[i]} & 0x8000u) << 16;
    out[i] = std::bit_cast<float>((magnitude < 0x7c00u ? finite : special) | sign);
  }
}

inline void narrow(const float* x, uint16_t* out) {
  for (int i = 0; i < 16; ++i) out[i] = float_to_fp16(x[i]);
}

#include "device/cpu/lanes.inl"

}  // namespace

const LaneKernels kPortableLanes = {norm, quantize, gate,    open_gate,  convolve, delta,
                                    dot,  softcap,  sum_exp, narrow_row, attend,   merge};

const LaneKernels& lane_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return kAvx512Lanes;
  if (isa == Isa::kAvx2) return kAvx2Lanes;
#endif
  (void)isa;
  return kPortableLanes;
}

}  // namespace mference::cpu
