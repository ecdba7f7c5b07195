// The end of a layer.
#include "common.h"

// The ranks of a row's parts in ascending id; threads from `parts` on only wait.
inline void order_parts(device const int* ids, int parts, threadgroup int* order,
                        uint thread_index) {
  if (int(thread_index) < parts) {
    const int id = ids[thread_index];
    int rank = 0;
    for (int j = 0; j < parts; ++j) {
      const int other = ids[j];
      rank += other < id || (other == id && j < int(thread_index)) ? 1 : 0;
    }
    order[rank] = int(thread_index);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Column i of a row's routed output: itself if parts is 0, else the sum of its parts by weight in
// ascending id, in the arithmetic of accumulate.
inline float routed_sum(device const float* routed, device const float* weights,
                        threadgroup const int* order, int parts, int hidden, int i) {
  if (parts == 0) return routed[i];
  float sum = 0.0f;
  for (int p = 0; p < parts; ++p) {
    const int rank = order[p];
    sum = fma(weights[rank], routed[ulong(rank) * hidden + i], sum);
  }
  return sum;
}

// One row: x = (x + rms(rms(shared) + rms(routed_sum))) * layer_scalar.
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
  device const float* own_weights = weights + ulong(row) * a.parts;
  order_parts(ids + ulong(row) * a.parts, a.parts, order, thread_index);

  device const float* parts = routed + at * max(a.parts, 1);
  float own[kRowValues], both[kRowValues];
  float routed_squares = 0.0f, shared_squares = 0.0f;
  UNROLL
  for (int j = 0; j < kRowValues; ++j) {
    const int i = int(thread_index) + j * kRowThreads;
    own[j] = 0.0f;
    both[j] = 0.0f;
    if (i >= a.hidden) continue;
    own[j] = routed_sum(parts, own_weights, order, a.parts, a.hidden, i);
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

// x += routed_sum + shared.
// Grid: (hidden / 256, rows); 256 threads, parts <= kMaxParts. Offsets: 4 bytes.
kernel void residual_tail(device float* x [[buffer(0)]], device const float* shared [[buffer(1)]],
                          device const float* routed [[buffer(2)]],
                          device const int* ids [[buffer(3)]],
                          device const float* weights [[buffer(4)]],
                          constant TailArguments& a [[buffer(5)]],
                          uint3 block [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup int order[kMaxParts];
  const ulong row = block.y, at = row * a.hidden;
  order_parts(ids + row * a.parts, a.parts, order, thread_index);
  const int i = int(block.x) * 256 + int(thread_index);
  if (i >= a.hidden) return;
  const float sum = routed_sum(routed + at * max(a.parts, 1), weights + row * a.parts, order,
                               a.parts, a.hidden, i);
  x[at + i] += sum + shared[at + i];
}
