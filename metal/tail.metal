// The end of a layer.
#include "common.h"

// One row: x = (x + rms(rms(shared) + rms(sum))) * layer_scalar. The sum is routed itself if parts
// is 0, else that of its parts by weight in ascending id, in the arithmetic of accumulate.
// Grid: rows; kRowThreads threads, hidden <= kRowThreads * kRowValues, parts <= kMaxParts. Offsets:
// float32 and int32 4 bytes, BF16 2.
[[max_total_threads_per_threadgroup(kRowThreads)]] kernel void layer_tail(
    device float* x [[buffer(0)]], device const float* shared [[buffer(1)]],
    device const float* routed [[buffer(2)]], device const int* ids [[buffer(3)]],
    device const float* weights [[buffer(4)]], device const ushort* post_shared [[buffer(5)]],
    device const ushort* post_routed [[buffer(6)]], device const ushort* post_layer [[buffer(7)]],
    device const ushort* layer_scalar [[buffer(8)]], constant TailArguments& a [[buffer(9)]],
    uint row [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float sums[kRowThreads / kLanes];
  threadgroup int order[kMaxParts];
  const ulong at = ulong(row) * a.hidden;
  device const int* own_ids = ids + ulong(row) * a.parts;
  device const float* own_weights = weights + ulong(row) * a.parts;
  if (int(thread_index) < a.parts) {
    const int id = own_ids[thread_index];
    int rank = 0;
    for (int j = 0; j < a.parts; ++j) {
      const int other = own_ids[j];
      rank += other < id || (other == id && j < int(thread_index)) ? 1 : 0;
    }
    order[rank] = int(thread_index);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  device const float* parts = routed + at * max(a.parts, 1);
  float own[kRowValues], both[kRowValues];
  float routed_squares = 0.0f, shared_squares = 0.0f;
  UNROLL
  for (int j = 0; j < kRowValues; ++j) {
    const int i = int(thread_index) + j * kRowThreads;
    own[j] = 0.0f;
    both[j] = 0.0f;
    if (i >= a.hidden) continue;
    if (a.parts == 0) {
      own[j] = parts[i];
    } else {
      for (int p = 0; p < a.parts; ++p) {
        const int rank = order[p];
        own[j] = fma(own_weights[rank], parts[ulong(rank) * a.hidden + i], own[j]);
      }
    }
    both[j] = shared[at + i];
    routed_squares = fma(own[j], own[j], routed_squares);
    shared_squares = fma(both[j], both[j], shared_squares);
  }
  const float hidden = float(a.hidden);
  const uint simdgroups = kRowThreads / kLanes;
  float total = threadgroup_sum(routed_squares, sums, simdgroup, simdgroups, lane);
  const float routed_factor = rsqrt(total / hidden + a.eps);
  total = threadgroup_sum(shared_squares, sums, simdgroup, simdgroups, lane);
  const float shared_factor = rsqrt(total / hidden + a.eps);
  float squares = 0.0f;
  UNROLL
  for (int j = 0; j < kRowValues; ++j) {
    const int i = int(thread_index) + j * kRowThreads;
    if (i >= a.hidden) continue;
    both[j] = both[j] * shared_factor * bf16(post_shared[i]) +
              own[j] * routed_factor * bf16(post_routed[i]);
    squares = fma(both[j], both[j], squares);
  }
  total = threadgroup_sum(squares, sums, simdgroup, simdgroups, lane);
  const float factor = rsqrt(total / hidden + a.eps);
  const float scalar = bf16(layer_scalar[0]);
  UNROLL
  for (int j = 0; j < kRowValues; ++j) {
    const int i = int(thread_index) + j * kRowThreads;
    if (i >= a.hidden) continue;
    x[at + i] = (x[at + i] + both[j] * factor * bf16(post_layer[i])) * scalar;
  }
}
