// SIMD-group and quad-group functions: one row of results for each.
#include "common.h"

kernel void simd_floats(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                        uint i [[thread_position_in_grid]], uint n [[threads_per_grid]],
                        uint lane [[thread_index_in_simdgroup]]) {
  const float v = x[i];
  uint row = 0;
  y[n * row++ + i] = simd_sum(v);
  y[n * row++ + i] = simd_product(v);
  y[n * row++ + i] = simd_min(v);
  y[n * row++ + i] = simd_max(v);
  y[n * row++ + i] = simd_shuffle(v, ushort(31 - lane));
  y[n * row++ + i] = simd_shuffle_xor(v, 5);
  y[n * row++ + i] = lane >= 3 ? simd_shuffle_up(v, 3) : simd_shuffle_up(v, 3) * 0.0f;
  y[n * row++ + i] = lane < 28 ? simd_shuffle_down(v, 4) : simd_shuffle_down(v, 4) * 0.0f;
  y[n * row++ + i] = simd_broadcast(v, 9);
  y[n * row++ + i] = simd_broadcast_first(v);
  y[n * row++ + i] = simd_prefix_exclusive_sum(v);
  y[n * row++ + i] = simd_prefix_inclusive_sum(v);
  y[n * row++ + i] = simd_shuffle_rotate_down(v, 6);
  y[n * row++ + i] = simd_shuffle_and_fill_up(v, v + 100.0f, 2);
  y[n * row++ + i] = quad_sum(v);
  y[n * row++ + i] = quad_max(v);
  y[n * row++ + i] = quad_shuffle_xor(v, 1);
  y[n * row++ + i] = quad_broadcast(v, 2);
  y[n * row++ + i] = simd_sum(float2(v, 2.0f * v)).y;
  y[n * row++ + i] = float(simd_sum(half(v)));
}

kernel void simd_integers(device const uint* x [[buffer(0)]], device uint* y [[buffer(1)]],
                          uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
  const uint v = x[i];
  uint row = 0;
  y[n * row++ + i] = simd_sum(v);
  y[n * row++ + i] = simd_and(v);
  y[n * row++ + i] = simd_or(v);
  y[n * row++ + i] = simd_xor(v);
  y[n * row++ + i] = uint(ulong(simd_ballot(v & 1)));
  y[n * row++ + i] = simd_all(v < 1000);
  y[n * row++ + i] = simd_any(v == 7);
  y[n * row++ + i] = simd_max(int(v) - 500);
}

// Lanes that have returned take no part.
kernel void simd_active(device float* y [[buffer(0)]], constant uint& count [[buffer(1)]],
                        uint i [[thread_position_in_threadgroup]]) {
  y[i] = -1.0f;
  if (i >= count) return;
  y[i] = simd_sum(1.0f);
}

kernel void row_sums(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                     constant Shape& shape [[buffer(2)]], uint row [[threadgroup_position_in_grid]],
                     uint t [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float parts[32], total;
  float sum = 0.0f;
  for (uint c = t; c < shape.columns; c += threads) sum += x[row * shape.columns + c];
  sum = simd_sum(sum);
  if (lane == 0) parts[simdgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup == 0) {
    const float all = simd_sum(lane < simdgroups ? parts[lane] : 0.0f);
    if (lane == 0) total = all;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t == 0) y[row] = total;
}
