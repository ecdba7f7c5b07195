// C = A B in tiles of 8 by 8, one SIMD-group for each 16 by 16 of C; half, bfloat or float in, and
// float sums.
#include "common.h"

template <typename T>
kernel void multiply(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                     device float* c [[buffer(2)]], constant uint& n [[buffer(3)]],
                     threadgroup T* tile [[threadgroup(0)]],
                     uint2 group [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_matrix<float, 8, 8> sums[2][2];
  for (uint i = 0; i < 4; ++i) sums[i / 2][i % 2] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint k = 0; k < n; k += 8) {
    for (uint e = lane; e < 128; e += 32) tile[e] = a[(group.y * 16 + e / 8) * n + k + e % 8];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_matrix<T, 8, 8> left[2], right[2];
    for (uint i = 0; i < 2; ++i) {
      simdgroup_load(left[i], tile + i * 64, 8);
      simdgroup_load(right[i], b, n, ulong2(group.x * 16 + i * 8, k));
    }
    for (uint i = 0; i < 4; ++i) {
      simdgroup_multiply_accumulate(sums[i / 2][i % 2], left[i / 2], right[i % 2], sums[i / 2][i % 2]);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (uint i = 0; i < 4; ++i) {
    simdgroup_store(sums[i / 2][i % 2], c + (group.y * 16 + i / 2 * 8) * n + group.x * 16 + i % 2 * 8, n);
  }
}
template [[host_name("multiply_half")]] kernel void multiply<half>(device const half*, device const half*, device float*, constant uint&, threadgroup half*, uint2, uint);
template [[host_name("multiply_bfloat")]] kernel void multiply<bfloat>(device const bfloat*, device const bfloat*, device float*, constant uint&, threadgroup bfloat*, uint2, uint);
template [[host_name("multiply_float")]] kernel void multiply<float>(device const float*, device const float*, device float*, constant uint&, threadgroup float*, uint2, uint);

kernel void transpose_and_diagonal(device const half* x [[buffer(0)]], device half* y [[buffer(1)]],
                                   device half* z [[buffer(2)]]) {
  simdgroup_half8x8 m;
  simdgroup_load(m, x, 8, ulong2(0, 0), true);
  simdgroup_store(m, y);
  simdgroup_half8x8 twice, d(2.0h);
  simdgroup_multiply(twice, m, d);
  simdgroup_store(twice, z, 8, ulong2(0, 0), true);
}
