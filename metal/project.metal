// Projections: out = W x, and several of one norm.
#include "affine.h"

// What a row of products is multiplied by.
inline float share_of(device const float* gates, int token) {
  return kGated ? sigmoid(gates[token]) : 1.0f;
}

// out[t, n] = softcap(norm(x)[t] . W[n] * sigmoid(gates[t])).
// Grid: (rows / kGemvBlock, tokens / kGemvTokens or tokens); kGemvSimdgroups * 32 threads. x and
// out are float32 at 16 and 4 bytes, gates at 4, the rest lies at even offsets. Constants: kBits,
// kGroup, kWords, kNorm (without one, norm is not read), kManyTokens, kGated (if 0, gates are not
// read).
template <int kTokens>
inline void project_rows(device const float* x, device const ushort* norm, Matrix m,
                         device float* out, device const float* gates, int cols, int rows,
                         int tokens, float eps, float softcap, int row, int token, uint lane) {
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
    const float z = sums[i] * share_of(gates, t);
    out[ulong(t) * rows + r] = softcap > 0.0f ? softcap * precise::tanh(z / softcap) : z;
  }
}

kernel void project(device const float* x [[buffer(0)]], device const ushort* norm [[buffer(1)]],
                    device const ushort* weight [[buffer(2)]],
                    device const ushort* scales [[buffer(3)]],
                    device const ushort* biases [[buffer(4)]], device float* out [[buffer(5)]],
                    device const float* gates [[buffer(6)]],
                    constant ProjectArguments& a [[buffer(7)]],
                    uint3 block [[threadgroup_position_in_grid]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]]) {
  Matrix m;
  m.weight = weight;
  m.scales = scales;
  m.biases = biases;
  const int row = int(block.x) * kGemvBlock + int(simdgroup) * kGemvRows;
  if (kManyTokens) {
    project_rows<kGemvTokens>(x, norm, m, out, gates, a.cols, a.rows, a.tokens, a.eps, a.softcap,
                              row, int(block.y) * kGemvTokens, lane);
  } else {
    project_rows<1>(x, norm, m, out, gates, a.cols, a.rows, a.tokens, a.eps, a.softcap, row,
                    int(block.y), lane);
  }
}

// Writes a finished tile.
inline void write_tile(threadgroup const float* tile, threadgroup const float* factors,
                       device float* out, device const float* gates, int rows, int tokens, int row,
                       int token, uint thread_index) {
  for (int i = int(thread_index); i < kTileTokens * kTileRows; i += kTileThreads) {
    const int t = i / kTileRows, n = i % kTileRows;
    if (token + t >= tokens || row + n >= rows) continue;
    const float z = kNorm ? tile[i] * factors[t] : tile[i];
    out[ulong(token + t) * rows + row + n] = z * share_of(gates, token + t);
  }
}

// The same for many tokens.
// Grid: (rows / kTileRows, tokens / kTileTokens); kTileThreads threads. Buffers and constants as
// above, without kManyTokens and softcap.
kernel void project_tiles(
    device const float* x [[buffer(0)]], device const ushort* norm [[buffer(1)]],
    device const ushort* weight [[buffer(2)]], device const ushort* scales [[buffer(3)]],
    device const ushort* biases [[buffer(4)]], device float* out [[buffer(5)]],
    device const float* gates [[buffer(6)]], constant ProjectArguments& a [[buffer(7)]],
    uint3 block [[threadgroup_position_in_grid]], uint simdgroup [[simdgroup_index_in_threadgroup]],
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
  write_tile(scratch, factors, out, gates, a.rows, a.tokens, row, token, thread_index);
}

// Which of the matrices a block of `step` rows belongs to; `block` becomes its index in that one.
inline int matrix_of_block(constant NormProjectArguments& a, int step, thread int& block) {
  for (int i = 0; i < kNormParts - 1; ++i) {
    const int blocks = (a.rows[i] + step - 1) / step;
    if (block < blocks) return i;
    block -= blocks;
  }
  return kNormParts - 1;
}

template <class T>
inline T chosen(int which, T first, T second, T third, T fourth) {
  return which == 0 ? first : which == 1 ? second : which == 2 ? third : fourth;
}

// Up to kNormParts matrices of one format times norm(x): a single launch over the rows of all.
// Grid: (blocks of the first, then the second and so on, each rows / kGemvBlock; tokens as in
// project). kGemvSimdgroups * 32 threads. Alignment and constants as in project, kNorm is 1 and kGated 0.
kernel void norm_project(
    device const float* x [[buffer(0)]], device const ushort* norm [[buffer(1)]],
    device const ushort* w0 [[buffer(2)]], device const ushort* scales0 [[buffer(3)]],
    device const ushort* biases0 [[buffer(4)]], device const ushort* w1 [[buffer(5)]],
    device const ushort* scales1 [[buffer(6)]], device const ushort* biases1 [[buffer(7)]],
    device const ushort* w2 [[buffer(8)]], device const ushort* scales2 [[buffer(9)]],
    device const ushort* biases2 [[buffer(10)]], device const ushort* w3 [[buffer(11)]],
    device const ushort* scales3 [[buffer(12)]], device const ushort* biases3 [[buffer(13)]],
    device float* out0 [[buffer(14)]], device float* out1 [[buffer(15)]],
    device float* out2 [[buffer(16)]], device float* out3 [[buffer(17)]],
    constant NormProjectArguments& a [[buffer(18)]],
    uint3 position [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  int block = int(position.x);
  const int which = matrix_of_block(a, kGemvBlock, block);
  Matrix m;
  m.weight = chosen(which, w0, w1, w2, w3);
  m.scales = chosen(which, scales0, scales1, scales2, scales3);
  m.biases = chosen(which, biases0, biases1, biases2, biases3);
  device float* out = chosen(which, out0, out1, out2, out3);
  const int row = block * kGemvBlock + int(simdgroup) * kGemvRows;
  if (kManyTokens) {
    project_rows<kGemvTokens>(x, norm, m, out, x, a.cols, a.rows[which], a.tokens, a.eps, 0.0f, row,
                              int(position.y) * kGemvTokens, lane);
  } else {
    project_rows<1>(x, norm, m, out, x, a.cols, a.rows[which], a.tokens, a.eps, 0.0f, row,
                    int(position.y), lane);
  }
}

// The same for many tokens.
// Grid: (blocks of the first, then the second and so on, each rows / kTileRows; tokens /
// kTileTokens); kTileThreads threads.
kernel void norm_project_tiles(
    device const float* x [[buffer(0)]], device const ushort* norm [[buffer(1)]],
    device const ushort* w0 [[buffer(2)]], device const ushort* scales0 [[buffer(3)]],
    device const ushort* biases0 [[buffer(4)]], device const ushort* w1 [[buffer(5)]],
    device const ushort* scales1 [[buffer(6)]], device const ushort* biases1 [[buffer(7)]],
    device const ushort* w2 [[buffer(8)]], device const ushort* scales2 [[buffer(9)]],
    device const ushort* biases2 [[buffer(10)]], device const ushort* w3 [[buffer(11)]],
    device const ushort* scales3 [[buffer(12)]], device const ushort* biases3 [[buffer(13)]],
    device float* out0 [[buffer(14)]], device float* out1 [[buffer(15)]],
    device float* out2 [[buffer(16)]], device float* out3 [[buffer(17)]],
    constant NormProjectArguments& a [[buffer(18)]],
    uint3 position [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float4 tile[TILE_VECTORS];
  threadgroup float* scratch = (threadgroup float*)tile;
  threadgroup float factors[kTileTokens];
  int block = int(position.x);
  const int which = matrix_of_block(a, kTileRows, block);
  Matrix m;
  m.weight = chosen(which, w0, w1, w2, w3);
  m.scales = chosen(which, scales0, scales1, scales2, scales3);
  m.biases = chosen(which, biases0, biases1, biases2, biases3);
  device float* out = chosen(which, out0, out1, out2, out3);
  const int rows = a.rows[which];
  const int row = block * kTileRows, token = int(position.y) * kTileTokens;
  const int own_row = min(row + int(thread_index) / 2, rows - 1);
  const int own_token = min(token + int(thread_index) / 4, a.tokens - 1);
  multiply_tile(row_of(m, kBits, kGroup, a.cols, own_row), kBits, kGroup, kWords, a.cols,
                x + ulong(own_token) * a.cols, norm, a.eps, thread_index, simdgroup, scratch,
                factors);
  write_tile(scratch, factors, out, x, rows, a.tokens, row, token, thread_index);
}
