// What comes before the experts: the residual, norms, and the choice of experts.
#include "common.h"

// One row: x += rms(attention, post_attention); dense_in, routed_in and router_in are norms of the
// new x, the last one times hidden^-1/2.
// Grid: rows; kRowThreads threads, hidden <= kRowThreads * kRowValues. Offsets: float32 4 bytes,
// BF16 2.
[[max_total_threads_per_threadgroup(kRowThreads)]] kernel void router_setup(
    device float* x [[buffer(0)]], device const float* attention [[buffer(1)]],
    device const ushort* post_attention [[buffer(2)]], device const ushort* pre_dense [[buffer(3)]],
    device const ushort* pre_routed [[buffer(4)]], device const ushort* router_scale [[buffer(5)]],
    device float* dense_in [[buffer(6)]], device float* routed_in [[buffer(7)]],
    device float* router_in [[buffer(8)]], constant RouterArguments& a [[buffer(9)]],
    uint row [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float shared[kRowThreads / kLanes];
  const ulong at = ulong(row) * a.hidden;
  float own[kRowValues];
  float squares = 0.0f;
  UNROLL
  for (int j = 0; j < kRowValues; ++j) {
    const int i = int(thread_index) + j * kRowThreads;
    own[j] = i < a.hidden ? attention[at + i] : 0.0f;
    squares = fma(own[j], own[j], squares);
  }
  const float hidden = float(a.hidden);
  float total = threadgroup_sum(squares, shared, simdgroup, kRowThreads / kLanes, lane);
  const float attended = rsqrt(total / hidden + a.eps);
  squares = 0.0f;
  UNROLL
  for (int j = 0; j < kRowValues; ++j) {
    const int i = int(thread_index) + j * kRowThreads;
    if (i >= a.hidden) continue;
    own[j] = x[at + i] + own[j] * attended * bf16(post_attention[i]);
    x[at + i] = own[j];
    squares = fma(own[j], own[j], squares);
  }
  total = threadgroup_sum(squares, shared, simdgroup, kRowThreads / kLanes, lane);
  const float factor = rsqrt(total / hidden + a.eps);
  const float root = rsqrt(hidden);
  UNROLL
  for (int j = 0; j < kRowValues; ++j) {
    const int i = int(thread_index) + j * kRowThreads;
    if (i >= a.hidden) continue;
    const float normed = own[j] * factor;
    dense_in[at + i] = normed * bf16(pre_dense[i]);
    routed_in[at + i] = normed * bf16(pre_routed[i]);
    router_in[at + i] = normed * bf16(router_scale[i]) * root;
  }
}

// One row: x += update; normed = rms(x, norm).
// Grid and offsets as above.
[[max_total_threads_per_threadgroup(kRowThreads)]] kernel void residual_setup(
    device float* x [[buffer(0)]], device const float* update [[buffer(1)]],
    device const ushort* norm [[buffer(2)]], device float* normed [[buffer(3)]],
    constant RouterArguments& a [[buffer(4)]], uint row [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float shared[kRowThreads / kLanes];
  const ulong at = ulong(row) * a.hidden;
  float own[kRowValues];
  float squares = 0.0f;
  UNROLL
  for (int j = 0; j < kRowValues; ++j) {
    const int i = int(thread_index) + j * kRowThreads;
    own[j] = 0.0f;
    if (i >= a.hidden) continue;
    own[j] = x[at + i] + update[at + i];
    x[at + i] = own[j];
    squares = fma(own[j], own[j], squares);
  }
  const float total = threadgroup_sum(squares, shared, simdgroup, kRowThreads / kLanes, lane);
  const float factor = rsqrt(total / float(a.hidden) + a.eps);
  UNROLL
  for (int j = 0; j < kRowValues; ++j) {
    const int i = int(thread_index) + j * kRowThreads;
    if (i < a.hidden) normed[at + i] = own[j] * factor * bf16(norm[i]);
  }
}

// The k largest logits of a row, lower id first among equals, and their softmax, times expert_scale
// if it is scaled (else that is not read). A logit that is not finite raises kFaultRouter,
// or kFaultPlainRouter where it is not scaled.
// Grid: rows; 32 threads. Offsets: float32 and int32 4 bytes, BF16 2.
kernel void router_choose(device const float* logits [[buffer(0)]],
                          device const ushort* expert_scale [[buffer(1)]],
                          device int* ids [[buffer(2)]], device float* weights [[buffer(3)]],
                          device int* faults [[buffer(4)]],
                          constant RouterArguments& a [[buffer(5)]],
                          uint row [[threadgroup_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]]) {
  device const float* z = logits + ulong(row) * a.experts;
  for (int e = int(lane); e < a.experts; e += kLanes) {
    if (!is_finite(z[e])) raise(faults, a.scaled ? kFaultRouter : kFaultPlainRouter, int(row), 0);
  }
  device int* to = ids + ulong(row) * a.k;
  device float* share = weights + ulong(row) * a.k;
  uint last = 0xffffffffu;  // the order and id of the one chosen before
  int last_id = -1;
  float largest = 0.0f, total = 0.0f;
  for (int j = 0; j < a.k; ++j) {
    uint best = 0;
    int best_id = a.experts;
    for (int e = int(lane); e < a.experts; e += kLanes) {
      const uint order = order_of(z[e]);
      const bool left = order < last || (order == last && e > last_id);
      if (left && (order > best || (order == best && e < best_id))) {
        best = order;
        best_id = e;
      }
    }
    const uint top = simd_max(best);
    // Where numbers are missing there still is an id, below the number of experts.
    const int id = min(simd_min(best == top ? best_id : a.experts), a.experts - 1);
    last = top;
    last_id = id;
    if (j == 0) largest = z[id];
    const float e = precise::exp(z[id] - largest);
    total += e;
    if (lane == 0) {
      to[j] = id;
      share[j] = e;
    }
  }
  if (lane != 0) return;
  for (int j = 0; j < a.k; ++j) {
    const float own = share[j] / total;
    share[j] = a.scaled ? own * bf16(expert_scale[to[j]]) : own;
  }
}
