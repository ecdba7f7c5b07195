// <metal_math>, <metal_common>, <metal_geometric> and <metal_relational>. Functions of half and
// bfloat round the float result: at least as exact as Metal's.
#pragma once

#include "vector.h"

namespace metal {

template <class T>
struct identity {
  typedef T type;
};
template <class T>
using same = typename identity<T>::type;

#ifdef __NVPTX__
MSL_INLINE float exp2_(float x) {
  return __nvvm_ex2_approx_f(x);
}
MSL_INLINE float log2_(float x) {
  return __nvvm_lg2_approx_f(x);
}
MSL_INLINE float exp_(float x) {
  return exp2_(x * M_LOG2E_F);
}
MSL_INLINE float log_(float x) {
  return log2_(x) * M_LN2_F;
}
MSL_INLINE float sin_(float x) {
  return __nvvm_sin_approx_f(x);
}
MSL_INLINE float cos_(float x) {
  return __nvvm_cos_approx_f(x);
}
MSL_INLINE float tan_(float x) {
  return sin_(x) / cos_(x);
}
MSL_INLINE float tanh_(float x) {
  return 1.0f - 2.0f / (exp_(2.0f * x) + 1.0f);
}
MSL_INLINE float sqrt_(float x) {
  return __nvvm_sqrt_rn_f(x);
}
MSL_INLINE float rsqrt_(float x) {
  return __nvvm_rsqrt_approx_f(x);
}
MSL_INLINE float pow_(float x, float y) {
  return y == 0.0f ? 1.0f : x == 0.0f ? 0.0f : exp2_(y * log2_(x));
}
MSL_INLINE float sinh_(float x) {
  return 0.5f * (exp_(x) - exp_(-x));
}
MSL_INLINE float cosh_(float x) {
  return 0.5f * (exp_(x) + exp_(-x));
}
MSL_INLINE float fmod_(float x, float y) {
  return x - y * __builtin_truncf(x / y);
}
#else
MSL_INLINE float exp2_(float x) {
  return __builtin_exp2f(x);
}
MSL_INLINE float log2_(float x) {
  return __builtin_log2f(x);
}
MSL_INLINE float exp_(float x) {
  return __builtin_expf(x);
}
MSL_INLINE float log_(float x) {
  return __builtin_logf(x);
}
MSL_INLINE float sin_(float x) {
  return __builtin_sinf(x);
}
MSL_INLINE float cos_(float x) {
  return __builtin_cosf(x);
}
MSL_INLINE float tan_(float x) {
  return __builtin_tanf(x);
}
MSL_INLINE float tanh_(float x) {
  return __builtin_tanhf(x);
}
MSL_INLINE float sqrt_(float x) {
  return __builtin_sqrtf(x);
}
MSL_INLINE float rsqrt_(float x) {
  return 1.0f / __builtin_sqrtf(x);
}
MSL_INLINE float pow_(float x, float y) {
  return __builtin_powf(x, y);
}
MSL_INLINE float sinh_(float x) {
  return __builtin_sinhf(x);
}
MSL_INLINE float cosh_(float x) {
  return __builtin_coshf(x);
}
MSL_INLINE float fmod_(float x, float y) {
  return __builtin_fmodf(x, y);
}
#endif

// A function of one number, for the three types and their vectors.
#define MSL_UNARY(name, expression)                                                  \
  MSL_INLINE float name(float x) {                                                   \
    return expression;                                                               \
  }                                                                                  \
  MSL_INLINE half name(half argument) {                                              \
    const float x = (float)argument;                                                 \
    return (half)(expression);                                                       \
  }                                                                                  \
  MSL_INLINE bfloat name(bfloat argument) {                                          \
    const float x = (float)argument;                                                 \
    return (bfloat)(expression);                                                     \
  }                                                                                  \
  template <class V, class = enable_if_vector_t<V>>                                  \
  MSL_INLINE V name(V v) {                                                           \
    V result;                                                                        \
    for (int i = 0; i < vector_size_v<V>; ++i) result[i] = name((element_t<V>)v[i]); \
    return result;                                                                   \
  }
#define MSL_BINARY(name, expression)                            \
  MSL_INLINE float name(float x, float y) {                     \
    return expression;                                          \
  }                                                             \
  MSL_INLINE half name(half a, half b) {                        \
    const float x = (float)a, y = (float)b;                     \
    return (half)(expression);                                  \
  }                                                             \
  MSL_INLINE bfloat name(bfloat a, bfloat b) {                  \
    const float x = (float)a, y = (float)b;                     \
    return (bfloat)(expression);                                \
  }                                                             \
  template <class V, class = enable_if_vector_t<V>>             \
  MSL_INLINE V name(V a, same<V> b) {                           \
    V result;                                                   \
    for (int i = 0; i < vector_size_v<V>; ++i) {                \
      result[i] = name((element_t<V>)a[i], (element_t<V>)b[i]); \
    }                                                           \
    return result;                                              \
  }

#define MSL_TRANSCENDENTAL               \
  MSL_UNARY(exp, exp_(x))                \
  MSL_UNARY(exp2, exp2_(x))              \
  MSL_UNARY(exp10, pow_(10.0f, x))       \
  MSL_UNARY(log, log_(x))                \
  MSL_UNARY(log2, log2_(x))              \
  MSL_UNARY(log10, log_(x) * M_LOG10E_F) \
  MSL_UNARY(sqrt, sqrt_(x))              \
  MSL_UNARY(rsqrt, rsqrt_(x))            \
  MSL_UNARY(sin, sin_(x))                \
  MSL_UNARY(cos, cos_(x))                \
  MSL_UNARY(tan, tan_(x))                \
  MSL_UNARY(sinh, sinh_(x))              \
  MSL_UNARY(cosh, cosh_(x))              \
  MSL_UNARY(tanh, tanh_(x))              \
  MSL_UNARY(sinpi, sin_(x* M_PI_F))      \
  MSL_UNARY(cospi, cos_(x* M_PI_F))      \
  MSL_BINARY(pow, pow_(x, y))            \
  MSL_BINARY(powr, pow_(x, y))           \
  MSL_BINARY(divide, x / y)

MSL_TRANSCENDENTAL
#ifndef __NVPTX__
MSL_UNARY(asin, __builtin_asinf(x))
MSL_UNARY(acos, __builtin_acosf(x))
MSL_UNARY(atan, __builtin_atanf(x))
MSL_UNARY(asinh, __builtin_asinhf(x))
MSL_UNARY(acosh, __builtin_acoshf(x))
MSL_UNARY(atanh, __builtin_atanhf(x))
MSL_BINARY(atan2, __builtin_atan2f(x, y))
#endif
MSL_UNARY(floor, __builtin_floorf(x))
MSL_UNARY(ceil, __builtin_ceilf(x))
MSL_UNARY(round, __builtin_roundf(x))
MSL_UNARY(rint, __builtin_rintf(x))
MSL_UNARY(trunc, __builtin_truncf(x))
MSL_UNARY(fabs, __builtin_fabsf(x))
MSL_UNARY(fract, x - __builtin_floorf(x))
MSL_UNARY(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))
MSL_UNARY(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f)
MSL_BINARY(fmin, __builtin_fminf(x, y))
MSL_BINARY(fmax, __builtin_fmaxf(x, y))
MSL_BINARY(fmod, fmod_(x, y))
MSL_BINARY(fdim, x > y ? x - y : 0.0f)
MSL_BINARY(copysign, __builtin_copysignf(x, y))
MSL_BINARY(step, y < x ? 0.0f : 1.0f)
MSL_BINARY(min, __builtin_fminf(x, y))
MSL_BINARY(max, __builtin_fmaxf(x, y))

#define MSL_INTEGER_MIN_MAX(T)                   \
  MSL_INLINE T min(T x, T y) {                   \
    return y < x ? y : x;                        \
  }                                              \
  MSL_INLINE T max(T x, T y) {                   \
    return x < y ? y : x;                        \
  }                                              \
  MSL_INLINE T abs(T x) {                        \
    return x < 0 ? (T) - x : x;                  \
  }                                              \
  MSL_INLINE T clamp(T x, T low, T high) {       \
    return metal::min(metal::max(x, low), high); \
  }
MSL_FOR_INTEGERS(MSL_INTEGER_MIN_MAX)
#undef MSL_INTEGER_MIN_MAX

#define MSL_FLOAT_FUNCTIONS(T)                                                 \
  MSL_INLINE T abs(T x) {                                                      \
    return metal::fabs(x);                                                     \
  }                                                                            \
  MSL_INLINE T clamp(T x, T low, T high) {                                     \
    return metal::min(metal::max(x, low), high);                               \
  }                                                                            \
  MSL_INLINE T mix(T x, T y, T a) {                                            \
    return x + (y - x) * a;                                                    \
  }                                                                            \
  MSL_INLINE T smoothstep(T low, T high, T x) {                                \
    const T t = metal::clamp((T)((x - low) / (high - low)), (T)0.0f, (T)1.0f); \
    return t * t * ((T)3.0f - (T)2.0f * t);                                    \
  }                                                                            \
  MSL_INLINE T ldexp(T x, int k) {                                             \
    return (T)((float)x * exp2_((float)k));                                    \
  }                                                                            \
  MSL_INLINE bool isnan(T x) {                                                 \
    return __builtin_isnan((float)x);                                          \
  }                                                                            \
  MSL_INLINE bool isinf(T x) {                                                 \
    return __builtin_isinf((float)x);                                          \
  }                                                                            \
  MSL_INLINE bool isfinite(T x) {                                              \
    return __builtin_isfinite((float)x);                                       \
  }                                                                            \
  MSL_INLINE bool signbit(T x) {                                               \
    return __builtin_signbit((float)x);                                        \
  }
MSL_FOR_FLOATS(MSL_FLOAT_FUNCTIONS)
#undef MSL_FLOAT_FUNCTIONS

// Vectors, element by element. Scalars beside a vector stand for all of its elements.
#define MSL_VECTOR_ABS(name)                                                         \
  template <class V, class = enable_if_vector_t<V>>                                  \
  MSL_INLINE V name(V v) {                                                           \
    V result;                                                                        \
    for (int i = 0; i < vector_size_v<V>; ++i) result[i] = name((element_t<V>)v[i]); \
    return result;                                                                   \
  }
MSL_VECTOR_ABS(abs)
#undef MSL_VECTOR_ABS
#define MSL_TERNARY_VECTOR(name)                                                    \
  template <class V, class = enable_if_vector_t<V>>                                 \
  MSL_INLINE V name(V a, same<V> b, same<V> c) {                                    \
    V result;                                                                       \
    for (int i = 0; i < vector_size_v<V>; ++i) {                                    \
      result[i] = name((element_t<V>)a[i], (element_t<V>)b[i], (element_t<V>)c[i]); \
    }                                                                               \
    return result;                                                                  \
  }
MSL_INLINE float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
#ifdef __NVPTX__
MSL_INLINE half fma(half a, half b, half c) {
  return (half)__builtin_fmaf(a, b, c);
}
#else
MSL_INLINE half fma(half a, half b, half c) {
  return (half)__builtin_fma((double)a, (double)b, (double)c);
}
#endif
MSL_INLINE bfloat fma(bfloat a, bfloat b, bfloat c) {
  return (bfloat)__builtin_fmaf((float)a, (float)b, (float)c);
}
MSL_TERNARY_VECTOR(fma)
MSL_TERNARY_VECTOR(clamp)
MSL_TERNARY_VECTOR(mix)
MSL_TERNARY_VECTOR(smoothstep)
#undef MSL_TERNARY_VECTOR

MSL_INLINE float sincos(float x, float& cosine) {
  cosine = cos_(x);
  return sin_(x);
}
MSL_INLINE float modf(float x, float& whole) {
  whole = __builtin_truncf(x);
  return x - whole;
}

namespace precise {
#ifdef __NVPTX__
// The whole part of the exponent apart, so that its fraction keeps all bits.
MSL_INLINE float exp_(float x) {
  x = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
  const float whole = __builtin_rintf(x * M_LOG2E_F);
  float rest = __builtin_fmaf(whole, -0x1.62e4p-1f, x);
  rest = __builtin_fmaf(whole, -0x1.7f7d1cp-20f, rest);
  return exp2_(rest * M_LOG2E_F) * exp2_(whole - 1.0f) * 2.0f;
}
#endif
MSL_TRANSCENDENTAL
MSL_BINARY(min, __builtin_fminf(x, y))
MSL_BINARY(max, __builtin_fmaxf(x, y))
MSL_BINARY(fmin, __builtin_fminf(x, y))
MSL_BINARY(fmax, __builtin_fmaxf(x, y))
using metal::clamp;
using metal::fabs;
using metal::floor;
using metal::fma;
using metal::rint;
using metal::round;
}  // namespace precise
namespace fast {
MSL_TRANSCENDENTAL
MSL_BINARY(min, __builtin_fminf(x, y))
MSL_BINARY(max, __builtin_fmaxf(x, y))
MSL_BINARY(fmin, __builtin_fminf(x, y))
MSL_BINARY(fmax, __builtin_fmaxf(x, y))
using metal::clamp;
using metal::fabs;
using metal::floor;
using metal::fma;
using metal::rint;
using metal::round;
}  // namespace fast

#undef MSL_TRANSCENDENTAL
#undef MSL_UNARY
#undef MSL_BINARY

template <class V, class = enable_if_vector_t<V>>
MSL_INLINE element_t<V> dot(V a, same<V> b) {
  element_t<V> sum = (element_t<V>)(a[0] * b[0]);
  for (int i = 1; i < vector_size_v<V>; ++i) sum = (element_t<V>)(sum + a[i] * b[i]);
  return sum;
}
template <class V, class = enable_if_vector_t<V>>
MSL_INLINE element_t<V> length_squared(V v) {
  return metal::dot(v, v);
}
template <class V, class = enable_if_vector_t<V>>
MSL_INLINE element_t<V> length(V v) {
  return metal::sqrt(metal::dot(v, v));
}
template <class V, class = enable_if_vector_t<V>>
MSL_INLINE element_t<V> distance(V a, same<V> b) {
  return metal::length(a - b);
}
template <class V, class = enable_if_vector_t<V>>
MSL_INLINE V normalize(V v) {
  return v * metal::rsqrt(metal::dot(v, v));
}

template <class M, class = enable_if_vector_t<M>>
MSL_INLINE bool all(M mask) {
  bool result = true;
  for (int i = 0; i < vector_size_v<M>; ++i) result = result && mask[i];
  return result;
}
template <class M, class = enable_if_vector_t<M>>
MSL_INLINE bool any(M mask) {
  bool result = false;
  for (int i = 0; i < vector_size_v<M>; ++i) result = result || mask[i];
  return result;
}
MSL_INLINE bool all(bool mask) {
  return mask;
}
MSL_INLINE bool any(bool mask) {
  return mask;
}

#define MSL_SELECT(T)                                     \
  MSL_INLINE T select(T otherwise, T chosen, bool mask) { \
    return mask ? chosen : otherwise;                     \
  }
MSL_FOR_SCALARS(MSL_SELECT)
#undef MSL_SELECT
template <class V, class M, class = enable_if_vector_t<V>>
MSL_INLINE V select(V otherwise, same<V> chosen, M mask) {
  static_assert(vector_size_v<M> == vector_size_v<V>, "select needs a mask of as many elements");
  V result;
  for (int i = 0; i < vector_size_v<V>; ++i) result[i] = mask[i] ? chosen[i] : otherwise[i];
  return result;
}

}  // namespace metal
