// From the last hidden state to a token, and from logits to candidates. Logits themselves are a
// product with a norm and a softcap: kernel project.
#include "affine.h"

// A candidate orders by value, then by the lower id: the larger key wins.
inline ulong candidate(float value, int id) {
  return ulong(order_of(value)) << 32 | ulong(0xffffffffu - uint(id));
}

// The largest candidate of the simdgroup, in every lane.
inline ulong best_of(ulong own) {
  const uint high = uint(own >> 32);
  const uint top = simd_max(high);
  return ulong(top) << 32 | ulong(simd_max(high == top ? uint(own) : 0u));
}

// The largest candidate of the threadgroup, in thread 0.
inline ulong threadgroup_best(ulong own, threadgroup ulong* shared, uint simdgroup, uint simdgroups,
                              uint lane) {
  const ulong best = best_of(own);
  if (lane == 0) shared[simdgroup] = best;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return best_of(lane < simdgroups ? shared[lane] : ulong(0));
}

// best[block] = the largest candidate among kHeadBlock rows of the table times norm(x).
// Grid: rows / kHeadBlock; 256 threads. Offsets: x 16 bytes, best 8, table even. Constants: kBits,
// kGroup, kWords; kNorm is 1.
kernel void argmax_blocks(
    device const float* x [[buffer(0)]], device const ushort* norm [[buffer(1)]],
    device const ushort* weight [[buffer(2)]], device const ushort* scales [[buffer(3)]],
    device const ushort* biases [[buffer(4)]], device ulong* best [[buffer(5)]],
    constant ArgmaxArguments& a [[buffer(6)]], uint block [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup ulong shared[8];
  Matrix m;
  m.weight = weight;
  m.scales = scales;
  m.biases = biases;
  device const float* own[1];
  own[0] = x;
  ulong top = 0;
  for (int i = int(simdgroup) * kGemvRows; i < kHeadBlock; i += 8 * kGemvRows) {
    const int row = int(block) * kHeadBlock + i;
    if (row >= a.rows) break;
    float sums[kGemvRows];
    multiply<1>(m, kBits, kGroup, kWords, a.cols, row, a.rows, own, norm, a.eps, lane, sums);
    UNROLL
    for (int r = 0; r < kGemvRows; ++r) {
      if (row + r < a.rows) top = max(top, candidate(sums[r], row + r));
    }
  }
  top = threadgroup_best(top, shared, simdgroup, 8, lane);
  if (simdgroup == 0 && lane == 0) best[block] = top;
}

// token = the best of all blocks. Without a single number among the logits it raises kFaultArgmax.
// Grid: 1; 256 threads. Offsets: best 8 bytes, token 4.
kernel void argmax_finish(device const ulong* best [[buffer(0)]], device int* token [[buffer(1)]],
                          device int* faults [[buffer(2)]],
                          constant ArgmaxArguments& a [[buffer(3)]],
                          uint thread_index [[thread_index_in_threadgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
  threadgroup ulong shared[8];
  ulong top = 0;
  for (int i = int(thread_index); i < a.blocks; i += 256) top = max(top, best[i]);
  top = threadgroup_best(top, shared, simdgroup, 8, lane);
  if (thread_index != 0) return;
  const uint order = uint(top >> 32);
  // Minus infinity is no number to choose either.
  if (order <= order_of(as_type<float>(0xff800000u))) raise(faults, kFaultArgmax, 0, 0);
  token[0] = int(0xffffffffu - uint(top));
}

// Sorts blocks of kSortBlock entries, descending, and keeps the first `keep` of each; 0 is no
// entry. The first round reads logits and also writes each block's {maximum, sum of exp(logit -
// maximum)}.
// Grid: entries / kSortBlock; kSortThreads threads. Offsets: logits and parts 4 bytes, the others
// 8.
[[max_total_threads_per_threadgroup(kSortThreads)]] kernel void candidates_sort(
    device const float* logits [[buffer(0)]], device const ulong* from [[buffer(1)]],
    device ulong* to [[buffer(2)]], device float* parts [[buffer(3)]],
    constant CandidateArguments& a [[buffer(4)]], uint block [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup ulong keys[kSortBlock];
  threadgroup float sums[kSortThreads / kLanes];
  const int base = int(block) * kSortBlock;
  for (int i = int(thread_index); i < kSortBlock; i += kSortThreads) {
    const int entry = base + i;
    ulong key = 0;
    if (entry < a.entries) key = a.first ? candidate(logits[entry], entry) : from[entry];
    keys[i] = key;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int size = 2; size <= kSortBlock; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      const int t = int(thread_index);
      const int low = t / step * 2 * step + t % step, high = low + step;
      const ulong first = keys[low], second = keys[high];
      const bool descending = (low & size) == 0;
      if ((first < second) == descending) {
        keys[low] = second;
        keys[high] = first;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  for (int i = int(thread_index); i < a.keep; i += kSortThreads) to[block * a.keep + i] = keys[i];
  if (!a.first) return;
  const float top = logits[0xffffffffu - uint(keys[0])];
  float sum = 0.0f;
  for (int i = int(thread_index); i < kSortBlock; i += kSortThreads) {
    if (base + i < a.entries) sum += precise::exp(logits[base + i] - top);
  }
  sum = threadgroup_sum(sum, sums, simdgroup, kSortThreads / kLanes, lane);
  if (thread_index == 0) {
    parts[2 * block] = top;
    parts[2 * block + 1] = sum;
  }
}

// ids and values of the first `count` sorted entries, and log_sum from the parts of the first
// round. Fewer numbers than that raise kFaultCandidates.
// Grid: 1; 32 threads. Offsets: sorted 8 bytes, the others 4.
kernel void candidates_finish(device const float* logits [[buffer(0)]],
                              device const ulong* sorted [[buffer(1)]],
                              device const float* parts [[buffer(2)]],
                              device int* ids [[buffer(3)]], device float* values [[buffer(4)]],
                              device float* log_sum [[buffer(5)]], device int* faults [[buffer(6)]],
                              constant FinishArguments& a [[buffer(7)]],
                              uint lane [[thread_index_in_simdgroup]]) {
  for (int i = int(lane); i < a.count; i += kLanes) {
    const ulong key = sorted[i];
    const uint id = min(0xffffffffu - uint(key), uint(a.vocabulary - 1));
    if (key >> 32 == 0) raise(faults, kFaultCandidates, i, a.count);
    ids[i] = int(id);
    values[i] = logits[id];
  }
  float top = LOWEST_SCORE;
  for (int i = int(lane); i < a.blocks; i += kLanes) top = max(top, parts[2 * i]);
  top = simd_max(top);
  float sum = 0.0f;
  for (int i = int(lane); i < a.blocks; i += kLanes) {
    sum += parts[2 * i + 1] * precise::exp(parts[2 * i] - top);
  }
  sum = simd_sum(sum);
  if (lane == 0) log_sum[0] = top + precise::log(sum);
}
