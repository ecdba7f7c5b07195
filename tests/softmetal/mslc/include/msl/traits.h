// <metal_type_traits> and <metal_limits>.
#pragma once

#include "types.h"

namespace metal {

using ::bfloat;
using ::half;
using ::uchar;
using ::uint;
using ::ulong;
using ::ushort;

template <class T, T v>
struct integral_constant {
  static constexpr T value = v;
  constexpr operator T() const { return v; }
};
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;

template <class A, class B>
struct is_same : false_type {};
template <class A>
struct is_same<A, A> : true_type {};
template <class A, class B>
constexpr bool is_same_v = is_same<A, B>::value;

template <bool B, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  typedef T type;
};
template <bool B, class T = void>
using enable_if_t = typename enable_if<B, T>::type;

template <bool B, class T, class F>
struct conditional {
  typedef T type;
};
template <class T, class F>
struct conditional<false, T, F> {
  typedef F type;
};
template <bool B, class T, class F>
using conditional_t = typename conditional<B, T, F>::type;

template <class T>
struct remove_reference {
  typedef __remove_reference_t(T) type;
};
template <class T>
using remove_reference_t = __remove_reference_t(T);
template <class T>
struct remove_cv {
  typedef __remove_cv(T) type;
};
template <class T>
using remove_cv_t = __remove_cv(T);

template <class T>
struct is_integral {
  static constexpr bool value = __is_integral(T);
};
template <class T>
struct is_floating_point {
  static constexpr bool value = is_same_v<__remove_cv(T), float> ||
                                is_same_v<__remove_cv(T), half> ||
                                is_same_v<__remove_cv(T), bfloat>;
};
template <class T>
struct is_unsigned {
  static constexpr bool value = __is_unsigned(T);
};
template <class T>
struct is_signed {
  static constexpr bool value = __is_signed(T);
};
template <class T>
constexpr bool is_integral_v = is_integral<T>::value;
template <class T>
constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T>
constexpr bool is_unsigned_v = is_unsigned<T>::value;
template <class T>
constexpr bool is_signed_v = is_signed<T>::value;

template <class T>
struct numeric_limits;
#define MSL_INTEGER_LIMITS(T)                                     \
  template <>                                                     \
  struct numeric_limits<T> {                                      \
    static constexpr bool is_integer = true;                      \
    static constexpr int digits = sizeof(T) * 8 - __is_signed(T); \
    static constexpr T max() {                                    \
      return (T)(~0ul >> (64 - digits));                          \
    }                                                             \
    static constexpr T min() {                                    \
      return __is_signed(T) ? (T)(-max() - 1) : (T)0;             \
    }                                                             \
    static constexpr T lowest() {                                 \
      return min();                                               \
    }                                                             \
  };
MSL_FOR_INTEGERS(MSL_INTEGER_LIMITS)
#undef MSL_INTEGER_LIMITS
#define MSL_FLOAT_LIMITS(T, least, largest, step) \
  template <>                                     \
  struct numeric_limits<T> {                      \
    static constexpr bool is_integer = false;     \
    static constexpr T min() {                    \
      return (T)least;                            \
    }                                             \
    static constexpr T lowest() {                 \
      return (T) - largest;                       \
    }                                             \
    static constexpr T max() {                    \
      return (T)largest;                          \
    }                                             \
    static constexpr T epsilon() {                \
      return (T)step;                             \
    }                                             \
    static constexpr T infinity() {               \
      return (T)__builtin_inff();                 \
    }                                             \
    static constexpr T quiet_NaN() {              \
      return (T)__builtin_nanf("");               \
    }                                             \
  };
MSL_FLOAT_LIMITS(float, FLT_MIN, FLT_MAX, FLT_EPSILON)
MSL_FLOAT_LIMITS(half, 6.103515625e-05f, 65504.0f, 0.0009765625f)
MSL_FLOAT_LIMITS(bfloat, FLT_MIN, 3.38953139e38f, 0.0078125f)
#undef MSL_FLOAT_LIMITS

}  // namespace metal

namespace msl {

// What a pointer points to, without its address space.
template <class P>
struct pointee_of;
template <class T>
struct pointee_of<T*> {
  typedef __remove_cv(T) type;
};
#ifdef MSL_STRICT
template <class T>
struct pointee_of<MSL_DEVICE T*> {
  typedef __remove_cv(T) type;
};
template <class T>
struct pointee_of<MSL_CONSTANT T*> {
  typedef __remove_cv(T) type;
};
template <class T>
struct pointee_of<MSL_THREADGROUP T*> {
  typedef __remove_cv(T) type;
};
#endif
template <class P>
using pointee = typename pointee_of<P>::type;

}  // namespace msl
