// What a GPU does not forgive: each kernel is wrong in one way.
#include "common.h"

kernel void read_past_end(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                          constant uint& distance [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  y[i] = x[i + distance];
}
kernel void write_past_end(device float* y [[buffer(0)]], constant uint& distance [[buffer(1)]],
                           uint i [[thread_position_in_grid]]) {
  y[i + distance] = 1.0f;
}
kernel void write_past_variable(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  threadgroup float values[8];
  values[i + 1] = 1.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = values[i];
}
kernel void write_past_array(device float* y [[buffer(0)]], threadgroup float* a [[threadgroup(0)]],
                             uint i [[thread_position_in_grid]]) {
  a[i + 1] = 1.0f;
  y[i] = 2.0f;
}
kernel void barrier_for_some(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  if (i < 40) threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = 1.0f;
}
kernel void mixed_functions(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  y[i] = i < 7 ? simd_sum(1.0f) : simd_max(1.0f);
}
kernel void barrier_or_sum(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  if (i < 7) y[i] = simd_sum(1.0f);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
kernel void matrix_for_some(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  simdgroup_float8x8 m;
  if (i < 16) simdgroup_load(m, y, 8);
  simdgroup_barrier(mem_flags::mem_none);
  simdgroup_store(m, y);
}
kernel void missing_barrier(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = float(i);
  y[i] = shared[i == 0 ? 0 : i - 1];  // right in order, and in no other
}
kernel void uninitialized(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  y[i] = shared[i];
}
kernel void order_of_groups(device uint* y [[buffer(0)]], uint i [[threadgroup_position_in_grid]]) {
  y[i] = i == 0 ? 1 : y[i - 1] + 1;
}
kernel void deep_stack(device uint* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  uint values[65536];
  for (uint k = 0; k < 65536; ++k) values[k] = y[(k + i) & 15];
  uint sum = 0;
  for (uint k = 0; k < 65536; ++k) sum += values[(k * 7919) & 65535] * values[k];
  y[i] = sum;
}
