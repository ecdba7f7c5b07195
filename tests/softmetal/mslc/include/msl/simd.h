// Barriers and SIMD-group functions.
#pragma once

#include "math.h"
#include "target.h"

namespace msl {

#define MSL_REDUCTION(name, expression) \
  struct name {                         \
    template <class T>                  \
    static MSL_INLINE T of(T a, T b) {  \
      return (T)(expression);           \
    }                                   \
  };
MSL_REDUCTION(Add, a + b)
MSL_REDUCTION(Multiply, a* b)
MSL_REDUCTION(Least, metal::min(a, b))
MSL_REDUCTION(Largest, metal::max(a, b))
MSL_REDUCTION(And, a& b)
MSL_REDUCTION(Or, a | b)
MSL_REDUCTION(Xor, a ^ b)
#undef MSL_REDUCTION

// What the lanes before this one showed, and with `inclusive` this one, combined in their order.
template <class Function, class T>
MSL_INLINE T scan(const Exchange<T>& values, T identity, bool inclusive) {
  T result = identity;
  const uint last = lane() + (inclusive ? 1 : 0);
  for (uint i = 0; i < 32; ++i) {
    const T value = values.from_or(i, identity);
    if (i < last) result = Function::of(result, value);
  }
  return result;
}

}  // namespace msl

namespace metal {

MSL_INLINE void threadgroup_barrier(mem_flags) {
  msl::threadgroup_barrier();
}
MSL_INLINE void simdgroup_barrier(mem_flags) {
  msl::simdgroup_barrier();
}

#define MSL_SIMD_REDUCTION(name, operation, function)                    \
  template <class T>                                                     \
  MSL_INLINE T name(T value) {                                           \
    return msl::reduce<msl::Operation::operation, msl::function>(value); \
  }
MSL_SIMD_REDUCTION(simd_sum, kSum, Add)
MSL_SIMD_REDUCTION(simd_product, kProduct, Multiply)
MSL_SIMD_REDUCTION(simd_min, kMin, Least)
MSL_SIMD_REDUCTION(simd_max, kMax, Largest)
MSL_SIMD_REDUCTION(simd_and, kAnd, And)
MSL_SIMD_REDUCTION(simd_or, kOr, Or)
MSL_SIMD_REDUCTION(simd_xor, kXor, Xor)
#undef MSL_SIMD_REDUCTION

template <class T>
MSL_INLINE T simd_shuffle(T value, ushort lane) {
  return msl::exchange<msl::Operation::kShuffle>(value).from_or(lane, value);
}
template <class T>
MSL_INLINE T simd_shuffle_up(T value, ushort delta) {
  return msl::exchange<msl::Operation::kShuffleUp>(value).from_or(msl::lane() - delta, value);
}
template <class T>
MSL_INLINE T simd_shuffle_down(T value, ushort delta) {
  return msl::exchange<msl::Operation::kShuffleDown>(value).from_or(msl::lane() + delta, value);
}
template <class T>
MSL_INLINE T simd_shuffle_and_fill_up(T value, T filling, ushort delta) {
  const T other =
      msl::exchange<msl::Operation::kShuffleUp>(value).from_or(msl::lane() - delta, value);
  const T fill = msl::exchange<msl::Operation::kShuffleUp>(filling).from_or(
      (msl::lane() - delta) & 31, filling);
  return msl::lane() < delta ? fill : other;
}
template <class T>
MSL_INLINE T simd_shuffle_and_fill_down(T value, T filling, ushort delta) {
  const T other =
      msl::exchange<msl::Operation::kShuffleDown>(value).from_or(msl::lane() + delta, value);
  const T fill = msl::exchange<msl::Operation::kShuffleDown>(filling).from_or(
      (msl::lane() + delta) & 31, filling);
  return msl::lane() + delta > 31 ? fill : other;
}
template <class T>
MSL_INLINE T simd_shuffle_rotate_up(T value, ushort delta) {
  return msl::exchange<msl::Operation::kShuffleRotate>(value).from_or((msl::lane() - delta) & 31,
                                                                      value);
}
template <class T>
MSL_INLINE T simd_shuffle_rotate_down(T value, ushort delta) {
  return msl::exchange<msl::Operation::kShuffleRotate>(value).from_or((msl::lane() + delta) & 31,
                                                                      value);
}
template <class T>
MSL_INLINE T simd_shuffle_xor(T value, ushort mask) {
  return msl::exchange<msl::Operation::kShuffleXor>(value).from_or(msl::lane() ^ mask, value);
}
template <class T>
MSL_INLINE T simd_broadcast(T value, ushort lane) {
  return msl::exchange<msl::Operation::kBroadcast>(value).from_or(lane, value);
}
template <class T>
MSL_INLINE T simd_broadcast_first(T value) {
  const auto values = msl::exchange<msl::Operation::kBroadcastFirst>(value);
  return values.from((uint)__builtin_ctz(values.active()));
}
template <class T>
MSL_INLINE T simd_prefix_exclusive_sum(T value) {
  return msl::scan<msl::Add>(msl::exchange<msl::Operation::kExclusive>(value), (T)0, false);
}
template <class T>
MSL_INLINE T simd_prefix_inclusive_sum(T value) {
  return msl::scan<msl::Add>(msl::exchange<msl::Operation::kInclusive>(value), (T)0, true);
}
template <class T>
MSL_INLINE T simd_prefix_exclusive_product(T value) {
  return msl::scan<msl::Multiply>(msl::exchange<msl::Operation::kExclusive>(value), (T)1, false);
}
template <class T>
MSL_INLINE T simd_prefix_inclusive_product(T value) {
  return msl::scan<msl::Multiply>(msl::exchange<msl::Operation::kInclusive>(value), (T)1, true);
}

struct simd_vote {
  typedef ulong vote_t;
  vote_t bits;
  MSL_INLINE explicit constexpr operator vote_t() const { return bits; }
  MSL_INLINE constexpr bool all() const { return bits == 0xffffffffu; }
  MSL_INLINE constexpr bool any() const { return bits != 0; }
};
MSL_INLINE simd_vote simd_ballot(bool predicate) {
  return {simd_or(predicate ? 1u << msl::lane() : 0u)};
}
MSL_INLINE bool simd_all(bool predicate) {
  return simd_and(predicate ? 1u : 0u) != 0;
}
MSL_INLINE bool simd_any(bool predicate) {
  return simd_or(predicate ? 1u : 0u) != 0;
}
MSL_INLINE bool simd_is_first() {
  return simd_broadcast_first(msl::lane()) == msl::lane();
}

}  // namespace metal
