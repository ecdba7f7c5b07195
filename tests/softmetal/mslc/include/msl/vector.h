// Vectors: how they are made, converted, packed and reinterpreted.
#pragma once

#include "traits.h"

namespace metal {

template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));

// The element type and count of a vector; of anything else itself and 1.
template <class V>
struct vector_traits {
  typedef V element;
  static constexpr int size = 1;
};
#define MSL_VECTOR_TRAITS_N(T, N)  \
  template <>                      \
  struct vector_traits<T##N> {     \
    typedef T element;             \
    static constexpr int size = N; \
  };
#define MSL_VECTOR_TRAITS(T) \
  MSL_VECTOR_TRAITS_N(T, 2) MSL_VECTOR_TRAITS_N(T, 3) MSL_VECTOR_TRAITS_N(T, 4)
MSL_FOR_SCALARS(MSL_VECTOR_TRAITS)
MSL_VECTOR_TRAITS(bool)
#undef MSL_VECTOR_TRAITS
#undef MSL_VECTOR_TRAITS_N

template <class V>
using element_t = typename vector_traits<V>::element;
template <class V>
constexpr int vector_size_v = vector_traits<V>::size;
template <class V>
using enable_if_vector_t = enable_if_t<(vector_size_v<V> > 1)>;

#ifndef __NVPTX__
// To the nearest bfloat, ties to even. Plain conversions call a function for this.
MSL_INLINE bfloat round_to_bfloat(float x) {
  const uint bits = __builtin_bit_cast(uint, x);
  const uint rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return __builtin_bit_cast(bfloat, (ushort)(x == x ? rounded : bits >> 16 | 0x40));
}
#endif

template <class V, class A>
MSL_INLINE constexpr V convert(A argument) {
#ifndef __NVPTX__
  if constexpr (is_same_v<V, bfloat> && is_same_v<A, float>) return round_to_bfloat(argument);
#endif
  return V(argument);
}

template <class V, class A>
MSL_INLINE constexpr void append(V& vector, int& at, A argument) {
  if constexpr (vector_size_v<A> == 1) {
    vector[at++] = convert<element_t<V>>(argument);
  } else {
    for (int i = 0; i < vector_size_v<A>; ++i) {
      vector[at++] = convert<element_t<V>>((element_t<A>)argument[i]);
    }
  }
}

template <class... A>
constexpr int total_size_v = (0 + ... + vector_size_v<A>);

// V(arguments...), which C++ lacks for vectors. Of other types it is just that.
template <class V, class... A>
MSL_INLINE constexpr V make(A... arguments) {
  if constexpr (vector_size_v<V> == 1 && sizeof...(A) == 1) {
    return (convert<V>(arguments), ...);
  } else if constexpr (vector_size_v<V> == 1) {
    return V(arguments...);
  } else if constexpr (sizeof...(A) == 0) {
    return V{};
  } else if constexpr (sizeof...(A) == 1 && total_size_v<A...> == 1) {
    return V((element_t<V>)(arguments, ...));
  } else {
    static_assert(total_size_v<A...> == vector_size_v<V>,
                  "the arguments of a vector constructor must give each element once");
    V vector = {};
    int at = 0;
    (append<V, A>(vector, at, arguments), ...);
    return vector;
  }
}

// (V)operand is caster<V>() ->* operand: the operator binds as a cast does, or nearly.
template <class V>
struct caster {
  template <class A>
  MSL_INLINE V operator->*(A operand) const {
    return make<V>(operand);
  }
};

template <class T, int N>
struct packed_elements;
template <class T>
struct packed_elements<T, 2> {
  T x, y;
};
template <class T>
struct packed_elements<T, 3> {
  T x, y, z;
};
template <class T>
struct packed_elements<T, 4> {
  T x, y, z, w;
};

template <class T, int N>
struct packed_vec : packed_elements<T, N> {
  packed_vec() = default;
  MSL_INLINE packed_vec(vec<T, N> vector) {
    for (int i = 0; i < N; ++i) (*this)[i] = vector[i];
  }
#ifdef MSL_STRICT  // C++ makes no copy constructors for other address spaces
  packed_vec(const packed_vec&) = default;
  packed_vec& operator=(const packed_vec&) = default;
  packed_vec(const MSL_DEVICE packed_vec&) {}
  packed_vec(const MSL_CONSTANT packed_vec&) {}
  packed_vec(const MSL_THREADGROUP packed_vec&) {}
#endif
  MSL_INLINE operator vec<T, N>() const {
    vec<T, N> vector;
    for (int i = 0; i < N; ++i) vector[i] = (*this)[i];
    return vector;
  }
  MSL_INLINE T& operator[](int i) { return (&this->x)[i]; }
  MSL_INLINE const T& operator[](int i) const { return (&this->x)[i]; }
};
template <class T, int N>
struct vector_traits<packed_vec<T, N>> {
  typedef T element;
  static constexpr int size = N;
};

template <class T, size_t N>
struct array {
  T element[N];
  MSL_INLINE T& operator[](size_t i) { return element[i]; }
  MSL_INLINE const T& operator[](size_t i) const { return element[i]; }
  static constexpr size_t size() { return N; }
};

template <class To, class From>
MSL_INLINE constexpr To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type is between types of the same size");
  return __builtin_bit_cast(To, from);
}

}  // namespace metal

using metal::as_type;

#define MSL_PACKED(T)                            \
  typedef metal::packed_vec<T, 2> packed_##T##2; \
  typedef metal::packed_vec<T, 3> packed_##T##3; \
  typedef metal::packed_vec<T, 4> packed_##T##4;
MSL_FOR_SCALARS(MSL_PACKED)
#undef MSL_PACKED
