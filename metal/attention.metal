// Queries, keys and values: preparing them, caching them, attending to them.
#include "common.h"

// ---- epilogue ----

inline float head_factor(device const float* x, int dim, float eps, uint lane) {
  float squares = 0.0f;
  for (int i = int(lane); i < dim; i += kLanes) squares = fma(x[i], x[i], squares);
  return rsqrt(simd_sum(squares) / float(dim) + eps);
}

// One dimension of a head's output: a query stays float32, a key or a value goes to the cache.
inline void put(device uchar* to, bool cached, int i, float value) {
  if (cached && kHalfCache) {
    ((device half*)to)[i] = half(value);
  } else {
    ((device float*)to)[i] = value;
  }
}

// Head `block.x` of row `block.y`: query heads, then keys, then values into the ring. The pairs
// (i, i + distance) for i < rotated turn, what lies beside them passes.
// Grid: (heads + 2 * kv_heads, rows); 32 threads. v may be k, and q_out q. Offsets: float32 4 bytes,
// BF16 2, the cache one element. Constants: kHalfCache.
kernel void qkv_epilogue(device const float* q [[buffer(0)]], device float* q_out [[buffer(1)]],
                         device const float* k [[buffer(2)]], device const float* v [[buffer(3)]],
                         device const ushort* q_norm [[buffer(4)]],
                         device const ushort* k_norm [[buffer(5)]],
                         device const float* rope [[buffer(6)]], device uchar* keys [[buffer(7)]],
                         device uchar* values [[buffer(8)]],
                         constant EpilogueArguments& a [[buffer(9)]],
                         uint3 block [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]]) {
  const int row = int(block.y);
  int head = int(block.x);
  const bool query = head < a.heads;
  if (!query) head -= a.heads;
  const bool key = !query && head < a.kv_heads;
  const bool value = !query && !key;
  if (value) head -= a.kv_heads;
  device const float* x;
  device uchar* to;
  if (query) {
    const ulong own = ulong(row) * a.heads + head;
    x = q + own * a.q_width;
    to = (device uchar*)(q_out + own * a.dim);
  } else {
    x = (key ? k : v) + (ulong(row) * a.kv_heads + head) * a.dim;
    const ulong slot = ulong(uint(a.position + row) % uint(a.capacity));
    const ulong bytes = kHalfCache ? sizeof(half) : sizeof(float);
    to = (key ? keys : values) + (slot * a.kv_heads + head) * a.dim * bytes;
  }
  const float factor = value && !a.norm_values ? 1.0f : head_factor(x, a.dim, a.eps, lane);
  device const ushort* norm = query ? q_norm : k_norm;
  device const float* angles = rope + ulong(row) * a.rotated * 2;
  const int rotated = value ? 0 : a.rotated;
  for (int i = int(lane); i < rotated; i += kLanes) {
    const int j = i + a.distance;
    const float lo = x[i] * factor * bf16(norm[i]), hi = x[j] * factor * bf16(norm[j]);
    const float c = angles[2 * i], s = angles[2 * i + 1];
    put(to, !query, i, lo * c - hi * s);
    put(to, !query, j, lo * s + hi * c);
  }
  for (int i = int(lane); i < a.dim; i += kLanes) {
    if (i < rotated || (i >= a.distance && i < a.distance + rotated)) continue;
    const float own = x[i] * factor;
    put(to, !query, i, value ? own : own * bf16(norm[i]));
  }
}

// x *= sigmoid of the last dim of the width values of its head's gate.
// Grid: (heads * dim / 256, rows); 256 threads. Offsets: 4 bytes.
kernel void gate_heads(device float* x [[buffer(0)]], device const float* gate [[buffer(1)]],
                       constant GateArguments& a [[buffer(2)]],
                       uint3 block [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]]) {
  const int i = int(block.x) * 256 + int(thread_index);
  if (i >= a.heads * a.dim) return;
  const ulong head = ulong(block.y) * a.heads + i / a.dim;
  x[head * a.dim + i % a.dim] *= sigmoid(gate[head * a.width + a.width - a.dim + i % a.dim]);
}

// ---- a row at a time: positions split over simdgroups ----

// Four of the floats that a lane holds of each head: dimensions 4 * lane + 128 * chunk and on.
#define HEAD_CHUNKS 8
// Positions whose keys are loaded before the first score is needed.
#define SPLIT_STEP 4

inline int first_position(constant AttentionArguments& a, int row) {
  return a.window > 0 ? max(0, a.position + row + 1 - a.window) : 0;
}

inline float4 cached(device const uchar* cache, ulong element) {
  if (kHalfCache) {
    const half4 four = *(device const half4*)((device const half*)cache + element);
    return float4(four);
  }
  return *(device const float4*)((device const float*)cache + element);
}

// The softmax average over one split of a row's positions: partial[(row, head, split)] = {sum of
// weighted values [dim], largest score, sum of weights}. A simdgroup serves kHeadPairs heads that
// read one KV head; those of a threadgroup read the same keys and values.
// Grid: (splits, kv_heads, rows); 32 threads for each kHeadPairs of the heads that share a KV head.
// Offsets: q and partials 16 bytes, the cache 4 elements; dim is a multiple of 16 up to 1024.
// Constants: kHalfCache, kHeadChunks.
kernel void attention_split(
    device const float* q [[buffer(0)]], device const uchar* keys [[buffer(1)]],
    device const uchar* values [[buffer(2)]], device float* partials [[buffer(3)]],
    constant AttentionArguments& a [[buffer(4)]], uint3 block [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const int row = int(block.z), kv = int(block.y), split = int(block.x);
  const int shared = a.heads / a.kv_heads;
  const int begin = first_position(a, row) + split * a.length;
  const int end = min(begin + a.length, a.position + row + 1);
  int head[kHeadPairs];
  float4 query[kHeadPairs][HEAD_CHUNKS], sum[kHeadPairs][HEAD_CHUNKS];
  float top[kHeadPairs], weight[kHeadPairs];
  UNROLL
  for (int h = 0; h < kHeadPairs; ++h) {
    head[h] = kv * shared + min(int(simdgroup) * kHeadPairs + h, shared - 1);
    top[h] = LOWEST_SCORE;
    weight[h] = 0.0f;
    UNROLL
    for (int j = 0; j < kHeadChunks; ++j) {
      const int d = j * 128 + int(lane) * 4;
      sum[h][j] = float4(0.0f);
      query[h][j] = float4(0.0f);
      if (d < a.dim) {
        query[h][j] =
            *(device const float4*)(q + (ulong(row) * a.heads + head[h]) * a.dim + d) * a.scale;
      }
    }
  }
  for (int p = begin; p < end; p += SPLIT_STEP) {
    ulong at[SPLIT_STEP];
    float score[SPLIT_STEP][kHeadPairs];
    UNROLL
    for (int i = 0; i < SPLIT_STEP; ++i) {
      at[i] = (ulong(uint(min(p + i, end - 1)) % uint(a.capacity)) * a.kv_heads + kv) * a.dim;
      UNROLL
      for (int h = 0; h < kHeadPairs; ++h) score[i][h] = 0.0f;
    }
    UNROLL
    for (int j = 0; j < kHeadChunks; ++j) {
      const int d = j * 128 + int(lane) * 4;
      if (d >= a.dim) continue;
      UNROLL
      for (int i = 0; i < SPLIT_STEP; ++i) {
        const float4 key = cached(keys, at[i] + d);
        UNROLL
        for (int h = 0; h < kHeadPairs; ++h) score[i][h] += dot(query[h][j], key);
      }
    }
    float keep[kHeadPairs];
    UNROLL
    for (int h = 0; h < kHeadPairs; ++h) {
      float higher = top[h];
      UNROLL
      for (int i = 0; i < SPLIT_STEP; ++i) {
        const float s = simd_sum(score[i][h]);
        score[i][h] = p + i < end ? s : LOWEST_SCORE;
        higher = max(higher, score[i][h]);
      }
      keep[h] = precise::exp(top[h] - higher);
      weight[h] *= keep[h];
      top[h] = higher;
      UNROLL
      for (int i = 0; i < SPLIT_STEP; ++i) {
        score[i][h] = p + i < end ? precise::exp(score[i][h] - higher) : 0.0f;
        weight[h] += score[i][h];
      }
    }
    UNROLL
    for (int j = 0; j < kHeadChunks; ++j) {
      const int d = j * 128 + int(lane) * 4;
      if (d >= a.dim) continue;
      UNROLL
      for (int h = 0; h < kHeadPairs; ++h) sum[h][j] = sum[h][j] * keep[h];
      UNROLL
      for (int i = 0; i < SPLIT_STEP; ++i) {
        const float4 value = cached(values, at[i] + d);
        UNROLL
        for (int h = 0; h < kHeadPairs; ++h) sum[h][j] += value * score[i][h];
      }
    }
  }
  UNROLL
  for (int h = 0; h < kHeadPairs; ++h) {
    if (int(simdgroup) * kHeadPairs + h >= shared) continue;
    const ulong part = (ulong(row) * a.heads + head[h]) * a.splits + split;
    device float* to = partials + part * (a.dim + 4);
    UNROLL
    for (int j = 0; j < kHeadChunks; ++j) {
      const int d = j * 128 + int(lane) * 4;
      if (d < a.dim) *(device float4*)(to + d) = sum[h][j];
    }
    if (lane == 0) {
      to[a.dim] = top[h];
      to[a.dim + 1] = weight[h];
    }
  }
}

// out[row, head] = the merged splits, at most kMaxSplits.
// Grid: (heads, rows); 128 threads. Offsets: 4 bytes.
kernel void attention_merge(device const float* partials [[buffer(0)]],
                            device float* out [[buffer(1)]],
                            constant AttentionArguments& a [[buffer(2)]],
                            uint3 block [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float shares[kMaxSplits];
  const ulong own = ulong(block.y) * a.heads + block.x;
  const int stride = a.dim + 4;
  device const float* from = partials + own * a.splits * stride;
  float top = LOWEST_SCORE;
  for (int s = int(lane); s < a.splits; s += kLanes) top = max(top, from[s * stride + a.dim]);
  top = simd_max(top);
  float total = 0.0f;
  for (int s = int(lane); s < a.splits; s += kLanes) {
    const float share = precise::exp(from[s * stride + a.dim] - top);
    total += from[s * stride + a.dim + 1] * share;
    if (thread_index == lane) shares[s] = share;
  }
  total = simd_sum(total);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int d = int(thread_index); d < a.dim; d += 128) {
    float sum = 0.0f;
    for (int s = 0; s < a.splits; ++s) sum = fma(from[s * stride + d], shares[s], sum);
    out[own * a.dim + d] = sum / total;
  }
}

// ---- many rows: matrices of scores ----

// kTileQueries queries that read one KV head, that is kTileQueries / shared rows by their shared
// heads, over all their positions in blocks of 32. Simdgroup s computes the scores of positions 8 s
// to 8 s + 7 of a block, then a quarter of the dimensions of the averages. Positions that a query
// may not see get weight 0, so their values must be finite.
// Grid: (kv_heads, rows / (kTileQueries / shared)); 128 threads. Dynamic threadgroup memory:
// kTileQueries * dim floats. Offsets: q and out 16 bytes, the cache 8 elements. dim is a multiple
// of 32 up to 512, capacity of 8, shared divides kTileQueries. Constants: kHalfCache.
#define BLOCK_POSITIONS 32
#define TILE_DIMS 16  // 8 x 8 matrices of a simdgroup's averages: dim / 4 / 8

template <typename T>
inline void score_block(device const T* keys, ulong stride, int blocks,
                        threadgroup const float* queries, threadgroup float* scores) {
  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (int i = 0; i < blocks; ++i) {
    simdgroup_float8x8 query;
    simdgroup_matrix<T, 8, 8> key;
    simdgroup_load(query, queries + i * 64, 8);
    simdgroup_load(key, keys + i * 8, stride, ulong2(0, 0), true);
    simdgroup_multiply_accumulate(sum, query, key, sum);
  }
  simdgroup_store(sum, scores, BLOCK_POSITIONS);
}

template <typename T>
inline void average_block(device const T* values, ulong stride, int matrices,
                          threadgroup const float* weights, simdgroup_float8x8 keep, bool first,
                          thread simdgroup_float8x8* sums) {
  simdgroup_float8x8 weight;
  simdgroup_load(weight, weights, BLOCK_POSITIONS);
  UNROLL
  for (int i = 0; i < TILE_DIMS; ++i) {
    if (i >= matrices) continue;
    simdgroup_matrix<T, 8, 8> value;
    simdgroup_load(value, values + i * 8, stride);
    if (first) {
      simdgroup_float8x8 kept;
      simdgroup_multiply(kept, keep, sums[i]);
      sums[i] = kept;
    }
    simdgroup_multiply_accumulate(sums[i], weight, value, sums[i]);
  }
}

kernel void attention_tiles(
    device const float* q [[buffer(0)]], device const uchar* keys [[buffer(1)]],
    device const uchar* values [[buffer(2)]], device float* out [[buffer(3)]],
    constant AttentionArguments& a [[buffer(4)]], threadgroup float* queries [[threadgroup(0)]],
    uint3 block [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float scores[kTileQueries * BLOCK_POSITIONS];
  threadgroup float weights[kTileQueries * BLOCK_POSITIONS];
  threadgroup float diagonal[64];  // what each query keeps of its average so far
  threadgroup float totals[kTileQueries];
  const int shared = a.heads / a.kv_heads;
  const int rows = kTileQueries / shared;
  const int kv = int(block.x), row = int(block.y) * rows;
  // Queries as 8 x 8 blocks along dim; those past the last row repeat it.
  for (int i = int(thread_index); i < kTileQueries * a.dim; i += 128) {
    const int query = i / a.dim, d = i % a.dim;
    const int r = min(row + query / shared, a.rows - 1);
    const ulong from = (ulong(r) * a.heads + kv * shared + query % shared) * a.dim + d;
    queries[d / 8 * 64 + query * 8 + d % 8] = q[from] * a.scale;
  }
  for (int i = int(thread_index); i < 64; i += 128) diagonal[i] = 0.0f;
  const int matrices = a.dim / 32;
  simdgroup_float8x8 sums[TILE_DIMS];
  UNROLL
  for (int i = 0; i < TILE_DIMS; ++i) sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  float top[2], total[2];
  UNROLL
  for (int i = 0; i < 2; ++i) {
    top[i] = LOWEST_SCORE;
    total[i] = 0.0f;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  const int last_row = min(row + rows, a.rows) - 1;
  const int begin = first_position(a, row) / BLOCK_POSITIONS * BLOCK_POSITIONS;
  const int end = a.position + last_row + 1;
  const ulong stride = ulong(a.kv_heads) * a.dim;
  for (int p = begin; p < end; p += BLOCK_POSITIONS) {
    const ulong own =
        ulong(uint(p + 8 * int(simdgroup)) % uint(a.capacity)) * stride + ulong(kv) * a.dim;
    if (kHalfCache) {
      score_block((device const half*)keys + own, stride, a.dim / 8, queries,
                  scores + 8 * simdgroup);
    } else {
      score_block((device const float*)keys + own, stride, a.dim / 8, queries,
                  scores + 8 * simdgroup);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL
    for (int i = 0; i < 2; ++i) {
      const int query = 2 * int(simdgroup) + i;
      const int r = min(row + query / shared, a.rows - 1);
      const int seen = p + int(lane);
      const bool valid = seen >= first_position(a, r) && seen <= a.position + r;
      const float s = valid ? scores[query * BLOCK_POSITIONS + lane] : LOWEST_SCORE;
      const float higher = max(top[i], simd_max(s));
      const float share = valid ? precise::exp(s - higher) : 0.0f;
      const float keep = precise::exp(top[i] - higher);
      total[i] = total[i] * keep + simd_sum(share);
      top[i] = higher;
      weights[query * BLOCK_POSITIONS + lane] = share;
      if (lane == 0) diagonal[query * 9] = keep;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_float8x8 keep;
    simdgroup_load(keep, diagonal, 8);
    for (int b = 0; b < BLOCK_POSITIONS / 8; ++b) {
      const ulong at = ulong(uint(p + 8 * b) % uint(a.capacity)) * stride + ulong(kv) * a.dim +
                       simdgroup * (a.dim / 4);
      if (kHalfCache) {
        average_block((device const half*)values + at, stride, matrices, weights + 8 * b, keep,
                      b == 0, sums);
      } else {
        average_block((device const float*)values + at, stride, matrices, weights + 8 * b, keep,
                      b == 0, sums);
      }
    }
  }
  UNROLL
  for (int i = 0; i < 2; ++i) {
    if (lane == 0) totals[2 * simdgroup + i] = total[i];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  UNROLL
  for (int i = 0; i < TILE_DIMS; ++i) {
    if (i >= matrices) continue;
    simdgroup_store(sums[i], queries + int(simdgroup) * (a.dim / 4) + i * 8, a.dim);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = int(thread_index); i < kTileQueries * a.dim; i += 128) {
    const int query = i / a.dim, d = i % a.dim;
    const int r = row + query / shared;
    if (r >= a.rows) continue;
    out[(ulong(r) * a.heads + kv * shared + query % shared) * a.dim + d] =
        queries[i] / totals[query];
  }
}
