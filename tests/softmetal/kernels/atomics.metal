#include "common.h"

kernel void count(device atomic_uint* counts [[buffer(0)]], device atomic_int* extremes [[buffer(1)]],
                  device atomic_float* sum [[buffer(2)]], device uint* histogram [[buffer(3)]],
                  device const uint* values [[buffer(4)]], uint i [[thread_position_in_grid]],
                  uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup atomic_uint bins[8];
  if (t < 8) atomic_store_explicit(&bins[t], 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint value = values[i];
  atomic_fetch_add_explicit(&bins[value & 7], 1u, memory_order_relaxed);
  atomic_fetch_add_explicit(counts, 1u, memory_order_relaxed);
  atomic_fetch_or_explicit(counts + 1, 1u << (value & 31), memory_order_relaxed);
  atomic_fetch_max_explicit(extremes, int(value), memory_order_relaxed);
  atomic_fetch_min_explicit(extremes + 1, -int(value), memory_order_relaxed);
  atomic_fetch_add_explicit(sum, 0.5f, memory_order_relaxed);
  uint expected = atomic_load_explicit(counts + 2, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(counts + 2, &expected, expected + 2,
                                                memory_order_relaxed, memory_order_relaxed)) {
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  device atomic_uint* out = (device atomic_uint*)histogram;
  for (uint k = t; k < 8; k += n) {
    atomic_fetch_add_explicit(out + k, atomic_load_explicit(&bins[k], memory_order_relaxed),
                              memory_order_relaxed);
  }
}
