// Quad-group functions: quads are four neighbours of a SIMD-group.
#pragma once

#include "simd.h"

namespace metal {

template <class T>
MSL_INLINE T quad_shuffle(T value, ushort lane) {
  return msl::exchange<msl::Operation::kQuad>(value).from_or((msl::lane() & ~3u) + lane, value);
}
template <class T>
MSL_INLINE T quad_broadcast(T value, ushort lane) {
  return quad_shuffle(value, lane);
}
template <class T>
MSL_INLINE T quad_shuffle_xor(T value, ushort mask) {
  return quad_shuffle(value, (ushort)((msl::lane() & 3) ^ mask));
}
template <class T>
MSL_INLINE T quad_shuffle_up(T value, ushort delta) {
  const uint at = msl::lane() & 3;
  return quad_shuffle(value, (ushort)(at < delta ? at : at - delta));
}
template <class T>
MSL_INLINE T quad_shuffle_down(T value, ushort delta) {
  const uint at = msl::lane() & 3;
  return quad_shuffle(value, (ushort)(at + delta > 3 ? at : at + delta));
}
#define MSL_QUAD_REDUCTION(name, function)                                \
  template <class T>                                                      \
  MSL_INLINE T name(T value) {                                            \
    value = msl::function::of(value, quad_shuffle_xor(value, (ushort)1)); \
    return msl::function::of(value, quad_shuffle_xor(value, (ushort)2));  \
  }
MSL_QUAD_REDUCTION(quad_sum, Add)
MSL_QUAD_REDUCTION(quad_product, Multiply)
MSL_QUAD_REDUCTION(quad_min, Least)
MSL_QUAD_REDUCTION(quad_max, Largest)
MSL_QUAD_REDUCTION(quad_and, And)
MSL_QUAD_REDUCTION(quad_or, Or)
MSL_QUAD_REDUCTION(quad_xor, Xor)
#undef MSL_QUAD_REDUCTION

}  // namespace metal
