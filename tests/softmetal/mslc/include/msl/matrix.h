// <metal_simdgroup_matrix>. Where a matrix's elements lie among the lanes is unspecified, so there
// is no thread_elements(). In the emulator the first lane holds and computes all of a matrix, and
// the others only count what they take part in; on NVIDIA every lane holds two elements.
#pragma once

#include "simd.h"

namespace metal {

template <class T, int Columns = 8, int Rows = 8>
struct simdgroup_matrix;

#ifdef __NVPTX__

}  // namespace metal
namespace msl {
// The place of the first of a lane's two elements: neighbours in a row.
MSL_INLINE uint row() {
  return lane() / 4;
}
MSL_INLINE uint column() {
  return lane() % 4 * 2;
}
MSL_INLINE uint holder(uint row, uint column) {
  return row * 4 + column / 2;
}
}  // namespace msl
namespace metal {

template <class T>
struct simdgroup_matrix<T, 8, 8> {
  T element[2];
  simdgroup_matrix() = default;
  MSL_INLINE explicit simdgroup_matrix(T diagonal) {
    for (uint k = 0; k < 2; ++k) {
      element[k] = msl::row() == msl::column() + k ? diagonal : (T)0.0f;
    }
  }
};

template <class T, int Columns, int Rows>
MSL_INLINE simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, Columns, Rows> matrix;
  matrix.element[0] = matrix.element[1] = value;
  return matrix;
}

template <class T, class Pointer>
MSL_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& matrix, Pointer source,
                               ulong elements_per_row = 8, ulong2 origin = ulong2(0),
                               bool transpose = false) {
  static_assert(is_same_v<msl::pointee<Pointer>, T>,
                "simdgroup_load reads elements of the matrix's own type");
  for (uint k = 0; k < 2; ++k) {
    const ulong r = msl::row(), c = msl::column() + k;
    matrix.element[k] = transpose ? source[(origin.y + c) * elements_per_row + origin.x + r]
                                  : source[(origin.y + r) * elements_per_row + origin.x + c];
  }
}
template <class T, class Pointer>
MSL_INLINE void simdgroup_store(simdgroup_matrix<T, 8, 8> matrix, Pointer destination,
                                ulong elements_per_row = 8, ulong2 origin = ulong2(0),
                                bool transpose = false) {
  for (uint k = 0; k < 2; ++k) {
    const ulong r = msl::row(), c = msl::column() + k;
    destination[transpose ? (origin.y + c) * elements_per_row + origin.x + r
                          : (origin.y + r) * elements_per_row + origin.x + c] = matrix.element[k];
  }
}

template <class D, class A, class B, class C>
MSL_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d,
                                              simdgroup_matrix<A, 8, 8> a,
                                              simdgroup_matrix<B, 8, 8> b,
                                              simdgroup_matrix<C, 8, 8> c) {
  float sum[2] = {(float)c.element[0], (float)c.element[1]};
  for (uint k = 0; k < 8; ++k) {
    float left[2], right[2];
    for (uint i = 0; i < 2; ++i) {
      left[i] = msl::shuffle((float)a.element[i], msl::holder(msl::row(), k));
      right[i] = msl::shuffle((float)b.element[i], msl::holder(k, msl::column()));
    }
    for (uint i = 0; i < 2; ++i) sum[i] += left[k % 2] * right[i];
  }
  d.element[0] = (D)sum[0];
  d.element[1] = (D)sum[1];
}

#else

}  // namespace metal
namespace msl {
// Whether this lane computes: the others take part, and are counted.
MSL_INLINE bool leads() {
  Lane* lane = softmetal::current();
  ++lane->matrix_operations;
  return lane->index == 0;
}
}  // namespace msl
namespace metal {

template <class T>
struct simdgroup_matrix<T, 8, 8> {
  float element[8][8];  // values of T
  simdgroup_matrix() = default;
  MSL_INLINE explicit simdgroup_matrix(T diagonal) {
    if (!msl::leads()) return;
    for (uint r = 0; r < 8; ++r) {
      for (uint c = 0; c < 8; ++c) element[r][c] = r == c ? (float)diagonal : 0.0f;
    }
  }
};

template <class T, int Columns, int Rows>
MSL_INLINE simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, Columns, Rows> matrix;
  if (!msl::leads()) return matrix;
  for (auto& row : matrix.element) {
    for (float& element : row) element = (float)value;
  }
  return matrix;
}

template <class T, class Pointer>
MSL_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& matrix, Pointer source,
                               ulong elements_per_row = 8, ulong2 origin = ulong2(0),
                               bool transpose = false) {
  static_assert(is_same_v<msl::pointee<Pointer>, T>,
                "simdgroup_load reads elements of the matrix's own type");
  if (!msl::leads()) return;
  const Pointer first = source + origin.y * elements_per_row + origin.x;
  for (uint r = 0; r < 8; ++r) {
    for (uint c = 0; c < 8; ++c) {
      (transpose ? matrix.element[c][r] : matrix.element[r][c]) =
          (float)first[r * elements_per_row + c];
    }
  }
}
template <class T, class Pointer>
MSL_INLINE void simdgroup_store(const simdgroup_matrix<T, 8, 8>& matrix, Pointer destination,
                                ulong elements_per_row = 8, ulong2 origin = ulong2(0),
                                bool transpose = false) {
  static_assert(is_same_v<msl::pointee<Pointer>, T>,
                "simdgroup_store writes elements of the matrix's own type");
  if (!msl::leads()) return;
  const Pointer first = destination + origin.y * elements_per_row + origin.x;
  for (uint r = 0; r < 8; ++r) {
    for (uint c = 0; c < 8; ++c) {
      first[r * elements_per_row + c] =
          (T)(transpose ? matrix.element[c][r] : matrix.element[r][c]);
    }
  }
}

template <class D, class A, class B, class C>
MSL_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d,
                                              const simdgroup_matrix<A, 8, 8>& a,
                                              const simdgroup_matrix<B, 8, 8>& b,
                                              const simdgroup_matrix<C, 8, 8>& c) {
  if (!msl::leads()) return;
  typedef float Row __attribute__((ext_vector_type(8), aligned(4)));
  Row right[8];
  for (uint k = 0; k < 8; ++k) right[k] = *(const Row*)b.element[k];
  Row result[8];
  for (uint r = 0; r < 8; ++r) {
    Row sum = *(const Row*)c.element[r];
    for (uint k = 0; k < 8; ++k) sum += a.element[r][k] * right[k];
    result[r] = sum;
  }
  for (uint r = 0; r < 8; ++r) {
    for (uint i = 0; i < 8; ++i) d.element[r][i] = (float)(D)result[r][i];
  }
}

#endif

template <class T>
MSL_INLINE simdgroup_matrix<T, 8, 8> make_diagonal_simdgroup_matrix(T value) {
  return simdgroup_matrix<T, 8, 8>(value);
}
template <class D, class A, class B>
MSL_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                   const simdgroup_matrix<B, 8, 8>& b) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>((D)0.0f));
}

typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;

}  // namespace metal
