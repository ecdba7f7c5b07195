// <metal_integer> and <metal_pack>.
#pragma once

#include "math.h"

namespace metal {

#define MSL_INTEGER_FUNCTIONS(T)                                                             \
  MSL_INLINE T popcount(T x) {                                                               \
    return (T)__builtin_popcountll((unsigned long long)x & (~0ull >> (64 - 8 * sizeof(T)))); \
  }                                                                                          \
  MSL_INLINE T clz(T x) {                                                                    \
    const auto bits = (unsigned long long)x & (~0ull >> (64 - 8 * sizeof(T)));               \
    return (T)(bits == 0 ? 8 * sizeof(T) : __builtin_clzll(bits) - (64 - 8 * sizeof(T)));    \
  }                                                                                          \
  MSL_INLINE T ctz(T x) {                                                                    \
    return (T)(x == 0 ? 8 * sizeof(T) : __builtin_ctzll((unsigned long long)x));             \
  }                                                                                          \
  MSL_INLINE T extract_bits(T x, uint offset, uint bits) {                                   \
    if (bits == 0) return 0;                                                                 \
    return (T)((T)(x << (8 * sizeof(T) - offset - bits)) >> (8 * sizeof(T) - bits));         \
  }                                                                                          \
  MSL_INLINE T insert_bits(T base, T insert, uint offset, uint bits) {                       \
    const auto mask = (bits >= 64 ? ~0ull : (1ull << bits) - 1) << offset;                   \
    return (T)(((unsigned long long)base & ~mask) |                                          \
               (((unsigned long long)insert << offset) & mask));                             \
  }                                                                                          \
  MSL_INLINE T reverse_bits(T x) {                                                           \
    T result = 0;                                                                            \
    for (uint i = 0; i < 8 * sizeof(T); ++i) {                                               \
      result = (T)((result << 1) | (T)(((unsigned long long)x >> i) & 1));                   \
    }                                                                                        \
    return result;                                                                           \
  }                                                                                          \
  MSL_INLINE T rotate(T x, T n) {                                                            \
    const uint width = 8 * sizeof(T), k = (uint)n & (width - 1);                             \
    const auto bits = (unsigned long long)x & (~0ull >> (64 - width));                       \
    return (T)(k == 0 ? bits : (bits << k) | (bits >> (width - k)));                         \
  }                                                                                          \
  MSL_INLINE T absdiff(T x, T y) {                                                           \
    return (T)(x < y ? y - x : x - y);                                                       \
  }                                                                                          \
  MSL_INLINE T addsat(T x, T y) {                                                            \
    T sum;                                                                                   \
    if (!__builtin_add_overflow(x, y, &sum)) return sum;                                     \
    return y < 0 ? numeric_limits<T>::min() : numeric_limits<T>::max();                      \
  }                                                                                          \
  MSL_INLINE T subsat(T x, T y) {                                                            \
    T difference;                                                                            \
    if (!__builtin_sub_overflow(x, y, &difference)) return difference;                       \
    return y < 0 ? numeric_limits<T>::max() : numeric_limits<T>::min();                      \
  }
MSL_FOR_INTEGERS(MSL_INTEGER_FUNCTIONS)
#undef MSL_INTEGER_FUNCTIONS

MSL_INLINE int mulhi(int x, int y) {
  return (int)(((long)x * y) >> 32);
}
MSL_INLINE uint mulhi(uint x, uint y) {
  return (uint)(((ulong)x * y) >> 32);
}
MSL_INLINE int mul24(int x, int y) {
  return ((x << 8) >> 8) * ((y << 8) >> 8);
}
MSL_INLINE uint mul24(uint x, uint y) {
  return (x & 0xffffffu) * (y & 0xffffffu);
}
MSL_INLINE int mad24(int x, int y, int z) {
  return mul24(x, y) + z;
}
MSL_INLINE uint mad24(uint x, uint y, uint z) {
  return mul24(x, y) + z;
}

template <class V, class = enable_if_vector_t<V>>
MSL_INLINE V popcount(V v) {
  V result;
  for (int i = 0; i < vector_size_v<V>; ++i) result[i] = popcount((element_t<V>)v[i]);
  return result;
}

MSL_INLINE float4 unpack_unorm4x8_to_float(uint x) {
  return float4{(float)(x & 255), (float)(x >> 8 & 255), (float)(x >> 16 & 255), (float)(x >> 24)} /
         255.0f;
}
MSL_INLINE float4 unpack_snorm4x8_to_float(uint x) {
  return max(float4{(float)(char)x, (float)(char)(x >> 8), (float)(char)(x >> 16),
                    (float)(char)(x >> 24)} /
                 127.0f,
             float4(-1.0f));
}

}  // namespace metal
