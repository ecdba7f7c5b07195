// <metal_atomic>.
#pragma once

#include "target.h"

namespace metal {

enum memory_order {
  memory_order_relaxed = __ATOMIC_RELAXED,
  memory_order_seq_cst = __ATOMIC_SEQ_CST
};
enum thread_scope {
  thread_scope_thread,
  thread_scope_simdgroup,
  thread_scope_threadgroup,
  thread_scope_device
};

template <class T>
struct atomic {
  T value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<bool> atomic_bool;
typedef atomic<float> atomic_float;
typedef atomic<ulong> atomic_ulong;

}  // namespace metal

namespace msl {

template <class A>
struct atomic_value;
template <class T>
struct atomic_value<metal::atomic<T>> {
  typedef T type;
};
// The same address as the builtins want it: in no address space.
template <class Pointer>
MSL_INLINE pointee<Pointer>* plain(Pointer pointer) {
  return (pointee<Pointer>*)pointer;
}
// The type in an atomic that a pointer points to, which may be volatile.
template <class Pointer>
using atomic_t = typename atomic_value<pointee<Pointer>>::type;

}  // namespace msl

namespace metal {

template <class Pointer>
MSL_INLINE msl::atomic_t<Pointer> atomic_load_explicit(Pointer object, memory_order) {
  msl::atomic_t<Pointer> result;
  __atomic_load(msl::plain(&object->value), &result, __ATOMIC_RELAXED);
  return result;
}
template <class Pointer>
MSL_INLINE void atomic_store_explicit(Pointer object, msl::atomic_t<Pointer> desired,
                                      memory_order) {
  __atomic_store(msl::plain(&object->value), &desired, __ATOMIC_RELAXED);
}
template <class Pointer>
MSL_INLINE msl::atomic_t<Pointer> atomic_exchange_explicit(Pointer object,
                                                           msl::atomic_t<Pointer> desired,
                                                           memory_order) {
  msl::atomic_t<Pointer> result;
  __atomic_exchange(msl::plain(&object->value), &desired, &result, __ATOMIC_RELAXED);
  return result;
}
template <class Pointer>
MSL_INLINE bool atomic_compare_exchange_weak_explicit(Pointer object,
                                                      msl::atomic_t<Pointer>* expected,
                                                      msl::atomic_t<Pointer> desired, memory_order,
                                                      memory_order) {
  return __atomic_compare_exchange(msl::plain(&object->value), expected, &desired, true,
                                   __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

#define MSL_FETCH(name, expression)                                                                \
  template <class Pointer>                                                                         \
  MSL_INLINE msl::atomic_t<Pointer> name(Pointer object, msl::atomic_t<Pointer> y, memory_order) { \
    msl::atomic_t<Pointer> x, next;                                                                \
    __atomic_load(msl::plain(&object->value), &x, __ATOMIC_RELAXED);                               \
    do {                                                                                           \
      next = expression;                                                                           \
    } while (!__atomic_compare_exchange(msl::plain(&object->value), &x, &next, true,               \
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED));                      \
    return x;                                                                                      \
  }
MSL_FETCH(atomic_fetch_add_explicit, x + y)
MSL_FETCH(atomic_fetch_sub_explicit, x - y)
MSL_FETCH(atomic_fetch_min_explicit, y < x ? y : x)
MSL_FETCH(atomic_fetch_max_explicit, x < y ? y : x)
MSL_FETCH(atomic_fetch_and_explicit, x& y)
MSL_FETCH(atomic_fetch_or_explicit, x | y)
MSL_FETCH(atomic_fetch_xor_explicit, x ^ y)
#undef MSL_FETCH

MSL_INLINE void atomic_thread_fence(mem_flags, memory_order = memory_order_seq_cst,
                                    thread_scope = thread_scope_device) {
  msl::fence();
}

}  // namespace metal
