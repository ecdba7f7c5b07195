// Projections: out = W x and, fused with a norm, queries, keys and values.
#include "affine.h"

// out[t, n] = softcap(norm(x)[t] . W[n]).
// Grid: (rows / kGemvBlock, tokens / kGemvTokens or tokens); kGemvSimdgroups * 32 threads. x and
// out are float32 at 16 and 4 bytes, the rest lies at even offsets. Constants: kBits, kGroup,
// kWords, kNorm (without one, norm is not read), kManyTokens.
template <int kTokens>
inline void project_rows(device const float* x, device const ushort* norm, Matrix m,
                         device float* out, int cols, int rows, int tokens, float eps,
                         float softcap, int row, int token, uint lane) {
  if (row >= rows) return;
  device const float* own[kTokens];
  UNROLL
  for (int t = 0; t < kTokens; ++t) own[t] = x + ulong(min(token + t, tokens - 1)) * cols;
  float sums[kGemvRows * kTokens];
  multiply<kTokens>(m, kBits, kGroup, kWords, cols, row, rows, own, norm, eps, lane, sums);
  UNROLL
  for (int i = 0; i < kGemvRows * kTokens; ++i) {
    const int r = row + i / kTokens, t = token + i % kTokens;
    if (int(lane) != i || r >= rows || t >= tokens) continue;
    const float z = sums[i];
    out[ulong(t) * rows + r] = softcap > 0.0f ? softcap * precise::tanh(z / softcap) : z;
  }
}

kernel void project(device const float* x [[buffer(0)]], device const ushort* norm [[buffer(1)]],
                    device const ushort* weight [[buffer(2)]],
                    device const ushort* scales [[buffer(3)]],
                    device const ushort* biases [[buffer(4)]], device float* out [[buffer(5)]],
                    constant ProjectArguments& a [[buffer(6)]],
                    uint3 block [[threadgroup_position_in_grid]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]]) {
  Matrix m;
  m.weight = weight;
  m.scales = scales;
  m.biases = biases;
  const int row = int(block.x) * kGemvBlock + int(simdgroup) * kGemvRows;
  if (kManyTokens) {
    project_rows<kGemvTokens>(x, norm, m, out, a.cols, a.rows, a.tokens, a.eps, a.softcap, row,
                              int(block.y) * kGemvTokens, lane);
  } else {
    project_rows<1>(x, norm, m, out, a.cols, a.rows, a.tokens, a.eps, a.softcap, row, int(block.y),
                    lane);
  }
}

// Writes a finished tile.
inline void write_tile(threadgroup const float* tile, threadgroup const float* factors,
                       device float* out, int rows, int tokens, int row, int token,
                       uint thread_index) {
  for (int i = int(thread_index); i < kTileTokens * kTileRows; i += kTileThreads) {
    const int t = i / kTileRows, n = i % kTileRows;
    if (token + t >= tokens || row + n >= rows) continue;
    out[ulong(token + t) * rows + row + n] = kNorm ? tile[i] * factors[t] : tile[i];
  }
}

// The same for many tokens.
// Grid: (rows / kTileRows, tokens / kTileTokens); kTileThreads threads. Buffers and constants as
// above, without kManyTokens and softcap.
kernel void project_tiles(
    device const float* x [[buffer(0)]], device const ushort* norm [[buffer(1)]],
    device const ushort* weight [[buffer(2)]], device const ushort* scales [[buffer(3)]],
    device const ushort* biases [[buffer(4)]], device float* out [[buffer(5)]],
    constant ProjectArguments& a [[buffer(6)]], uint3 block [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float4 tile[TILE_VECTORS];
  threadgroup float* scratch = (threadgroup float*)tile;
  threadgroup float factors[kTileTokens];
  Matrix m;
  m.weight = weight;
  m.scales = scales;
  m.biases = biases;
  const int row = int(block.x) * kTileRows, token = int(block.y) * kTileTokens;
  const int own_row = min(row + int(thread_index) / 2, a.rows - 1);
  const int own_token = min(token + int(thread_index) / 4, a.tokens - 1);
  multiply_tile(row_of(m, kBits, kGroup, a.cols, own_row), kBits, kGroup, kWords, a.cols,
                x + ulong(own_token) * a.cols, norm, a.eps, thread_index, simdgroup, scratch,
                factors);
  write_tile(scratch, factors, out, a.rows, a.tokens, row, token, thread_index);
}

// Which of three matrices a block of `step` rows belongs to; `block` becomes its index in that one.
inline int matrix_of_block(constant NormQkvArguments& a, int step, thread int& block) {
  for (int i = 0; i < 2; ++i) {
    const int blocks = (a.rows[i] + step - 1) / step;
    if (block < blocks) return i;
    block -= blocks;
  }
  return 2;
}

inline Matrix chosen(int which, device const ushort* q, device const ushort* q_scales,
                     device const ushort* q_biases, device const ushort* k,
                     device const ushort* k_scales, device const ushort* k_biases,
                     device const ushort* v, device const ushort* v_scales,
                     device const ushort* v_biases) {
  Matrix m;
  m.weight = which == 0 ? q : which == 1 ? k : v;
  m.scales = which == 0 ? q_scales : which == 1 ? k_scales : v_scales;
  m.biases = which == 0 ? q_biases : which == 1 ? k_biases : v_biases;
  return m;
}

// q, k and v of one format from norm(x): a single launch over the rows of all three.
// Grid: (blocks of q, then k, then v, each rows / kGemvBlock; tokens as in project).
// kGemvSimdgroups * 32 threads. Alignment and constants as in project, kNorm is 1.
kernel void norm_qkv(
    device const float* x [[buffer(0)]], device const ushort* norm [[buffer(1)]],
    device const ushort* q [[buffer(2)]], device const ushort* q_scales [[buffer(3)]],
    device const ushort* q_biases [[buffer(4)]], device const ushort* k [[buffer(5)]],
    device const ushort* k_scales [[buffer(6)]], device const ushort* k_biases [[buffer(7)]],
    device const ushort* v [[buffer(8)]], device const ushort* v_scales [[buffer(9)]],
    device const ushort* v_biases [[buffer(10)]], device float* q_out [[buffer(11)]],
    device float* k_out [[buffer(12)]], device float* v_out [[buffer(13)]],
    constant NormQkvArguments& a [[buffer(14)]], uint3 position [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  int block = int(position.x);
  const int which = matrix_of_block(a, kGemvBlock, block);
  const Matrix m =
      chosen(which, q, q_scales, q_biases, k, k_scales, k_biases, v, v_scales, v_biases);
  device float* out = which == 0 ? q_out : which == 1 ? k_out : v_out;
  const int row = block * kGemvBlock + int(simdgroup) * kGemvRows;
  if (kManyTokens) {
    project_rows<kGemvTokens>(x, norm, m, out, a.cols, a.rows[which], a.tokens, a.eps, 0.0f, row,
                              int(position.y) * kGemvTokens, lane);
  } else {
    project_rows<1>(x, norm, m, out, a.cols, a.rows[which], a.tokens, a.eps, 0.0f, row,
                    int(position.y), lane);
  }
}

// The same for many tokens.
// Grid: (blocks of q, then k, then v, each rows / kTileRows; tokens / kTileTokens); kTileThreads
// threads.
kernel void norm_qkv_tiles(
    device const float* x [[buffer(0)]], device const ushort* norm [[buffer(1)]],
    device const ushort* q [[buffer(2)]], device const ushort* q_scales [[buffer(3)]],
    device const ushort* q_biases [[buffer(4)]], device const ushort* k [[buffer(5)]],
    device const ushort* k_scales [[buffer(6)]], device const ushort* k_biases [[buffer(7)]],
    device const ushort* v [[buffer(8)]], device const ushort* v_scales [[buffer(9)]],
    device const ushort* v_biases [[buffer(10)]], device float* q_out [[buffer(11)]],
    device float* k_out [[buffer(12)]], device float* v_out [[buffer(13)]],
    constant NormQkvArguments& a [[buffer(14)]], uint3 position [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float4 tile[TILE_VECTORS];
  threadgroup float* scratch = (threadgroup float*)tile;
  threadgroup float factors[kTileTokens];
  int block = int(position.x);
  const int which = matrix_of_block(a, kTileRows, block);
  const Matrix m =
      chosen(which, q, q_scales, q_biases, k, k_scales, k_biases, v, v_scales, v_biases);
  device float* out = which == 0 ? q_out : which == 1 ? k_out : v_out;
  const int rows = a.rows[which];
  const int row = block * kTileRows, token = int(position.y) * kTileTokens;
  const int own_row = min(row + int(thread_index) / 2, rows - 1);
  const int own_token = min(token + int(thread_index) / 4, a.tokens - 1);
  multiply_tile(row_of(m, kBits, kGroup, a.cols, own_row), kBits, kGroup, kWords, a.cols,
                x + ulong(own_token) * a.cols, norm, a.eps, thread_index, simdgroup, scratch,
                factors);
  write_tile(scratch, factors, out, rows, a.tokens, row, token, thread_index);
}
