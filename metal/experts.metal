// The shared expert and the routed ones: down(act(gate x) * (up x)).
#include "affine.h"

// ---- phase 1: gate and up ----

// h[t, n] = act(gate[n] . x[t]) * (up[n] . x[t]) for kGemvRows rows n from `row` and `count` rows
// of h.
template <int kTokens>
inline void gated_rows(device const float* thread* x, Matrix gate, Matrix up, device float* h,
                       int cols, int rows, int row, int count, uint lane) {
  if (row >= rows) return;
  float lifted[kGemvRows * kTokens], raised[kGemvRows * kTokens];
  multiply<kTokens>(gate, kBits, kGroup, kWords, cols, row, rows, x, (device const ushort*)0, 0.0f,
                    lane, lifted);
  multiply<kTokens>(up, kUpBits, kUpGroup, kUpWords, cols, row, rows, x, (device const ushort*)0,
                    0.0f, lane, raised);
  UNROLL
  for (int i = 0; i < kGemvRows * kTokens; ++i) {
    const int r = row + i / kTokens, t = i % kTokens;
    if (int(lane) != i || r >= rows || t >= count) continue;
    h[ulong(t) * rows + r] = activate(lifted[i]) * raised[i];
  }
}

// The matrix row that this thread stages of a tile whose first half is gate and second half up:
// the up part of simdgroups 2 and 3.
inline Matrix gated_row(Matrix gate, Matrix up, bool second, int cols, int rows, int row,
                        uint thread_index) {
  const int n = min(row + int(thread_index) / 2 % (kTileRows / 2), rows - 1);
  if (second) return row_of(up, kUpBits, kUpGroup, cols, n);
  return row_of(gate, kBits, kGroup, cols, n);
}

// Writes act(gate) * up of a finished tile to `count` rows of h.
inline void write_gated(threadgroup const float* tile, device float* h, int rows, int row,
                        int count, uint thread_index) {
  for (int i = int(thread_index); i < kTileTokens * kTileRows / 2; i += kTileThreads) {
    const int t = i / (kTileRows / 2), n = i % (kTileRows / 2);
    if (t >= count || row + n >= rows) continue;
    threadgroup const float* from = tile + t * kTileRows + n;
    h[ulong(t) * rows + row + n] = activate(from[0]) * from[kTileRows / 2];
  }
}

// gates[t] = m . x[t] for `count` rows of x: the logits of a scalar gate, whose one row is m.
template <int kTokens>
inline void scalar_products(device const float* thread* x, Matrix m, device float* gates,
                            constant GatedArguments& a, int count, uint lane) {
  float sums[kGemvRows * kTokens];
  multiply<kTokens>(m, a.scalar_bits, a.scalar_group, a.scalar_words, a.cols, 0, 1, x,
                    (device const ushort*)0, 0.0f, lane, sums);
  UNROLL
  for (int t = 0; t < kTokens; ++t) {
    if (int(lane) == t && t < count) gates[t] = sums[t];
  }
}

// The shared expert's first phase. With a scalar gate the last block of the grid multiplies by it.
// Grid: (rows / kGemvBlock, and one more with a scalar gate; tokens / kGemvTokens or tokens);
// kGemvSimdgroups * 32 threads. x lies at 16 bytes, h and gates at 4, weights at even offsets.
// Constants: kBits, kGroup, kWords of gate and kUp... of up, kManyTokens, kSilu, kGated (if 0, the
// scalar gate is not read); kNorm is 0.
kernel void gated(
    device const float* x [[buffer(0)]], device const ushort* gate [[buffer(1)]],
    device const ushort* gate_scales [[buffer(2)]], device const ushort* gate_biases [[buffer(3)]],
    device const ushort* up [[buffer(4)]], device const ushort* up_scales [[buffer(5)]],
    device const ushort* up_biases [[buffer(6)]], device float* h [[buffer(7)]],
    device const ushort* scalar [[buffer(8)]], device const ushort* scalar_scales [[buffer(9)]],
    device const ushort* scalar_biases [[buffer(10)]], device float* gates [[buffer(11)]],
    constant GatedArguments& a [[buffer(12)]], uint3 block [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  Matrix g, u;
  g.weight = gate;
  g.scales = gate_scales;
  g.biases = gate_biases;
  u.weight = up;
  u.scales = up_scales;
  u.biases = up_biases;
  const int row = int(block.x) * kGemvBlock + int(simdgroup) * kGemvRows;
  const int step = kManyTokens ? int(kGemvTokens) : 1;
  const int token = int(block.y) * step;
  device const float* own[kGemvTokens];
  UNROLL
  for (int t = 0; t < kGemvTokens; ++t) own[t] = x + ulong(min(token + t, a.tokens - 1)) * a.cols;
  device float* to = h + ulong(token) * a.rows;
  const int count = min(step, a.tokens - token);
  if (kGated && int(block.x) * kGemvBlock >= a.rows) {
    if (simdgroup != 0) return;
    Matrix s;
    s.weight = scalar;
    s.scales = scalar_scales;
    s.biases = scalar_biases;
    if (kManyTokens) {
      scalar_products<kGemvTokens>(own, s, gates + token, a, count, lane);
    } else {
      scalar_products<1>(own, s, gates + token, a, count, lane);
    }
    return;
  }
  if (kManyTokens) {
    gated_rows<kGemvTokens>(own, g, u, to, a.cols, a.rows, row, count, lane);
  } else {
    gated_rows<1>(own, g, u, to, a.cols, a.rows, row, count, lane);
  }
}

// The same for many tokens.
// Grid: (rows / (kTileRows / 2), and one more with a scalar gate; tokens / kTileTokens);
// kTileThreads threads.
kernel void gated_tiles(
    device const float* x [[buffer(0)]], device const ushort* gate [[buffer(1)]],
    device const ushort* gate_scales [[buffer(2)]], device const ushort* gate_biases [[buffer(3)]],
    device const ushort* up [[buffer(4)]], device const ushort* up_scales [[buffer(5)]],
    device const ushort* up_biases [[buffer(6)]], device float* h [[buffer(7)]],
    device const ushort* scalar [[buffer(8)]], device const ushort* scalar_scales [[buffer(9)]],
    device const ushort* scalar_biases [[buffer(10)]], device float* gates [[buffer(11)]],
    constant GatedArguments& a [[buffer(12)]], uint3 block [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float4 tile[TILE_VECTORS];
  threadgroup float* scratch = (threadgroup float*)tile;
  threadgroup float factors[kTileTokens];
  Matrix g, u;
  g.weight = gate;
  g.scales = gate_scales;
  g.biases = gate_biases;
  u.weight = up;
  u.scales = up_scales;
  u.biases = up_biases;
  const int row = int(block.x) * (kTileRows / 2), token = int(block.y) * kTileTokens;
  if (kGated && row >= a.rows) {
    Matrix s;
    s.weight = scalar;
    s.scales = scalar_scales;
    s.biases = scalar_biases;
    constexpr int kShare = kTileTokens / (kTileThreads / kLanes);  // tokens of a simdgroup
    for (int i = 0; i < kShare; i += kGemvTokens) {
      const int first = token + int(simdgroup) * kShare + i;
      device const float* own[kGemvTokens];
      UNROLL
      for (int t = 0; t < kGemvTokens; ++t) {
        own[t] = x + ulong(min(first + t, a.tokens - 1)) * a.cols;
      }
      scalar_products<kGemvTokens>(own, s, gates + first, a, a.tokens - first, lane);
    }
    return;
  }
  const bool second = simdgroup >= 2;
  const int own_token = min(token + int(thread_index) / 4, a.tokens - 1);
  multiply_tile(gated_row(g, u, second, a.cols, a.rows, row, thread_index),
                second ? kUpBits : kBits, second ? kUpGroup : kGroup, second ? kUpWords : kWords,
                a.cols, x + ulong(own_token) * a.cols, (device const ushort*)0, 0.0f, thread_index,
                simdgroup, scratch, factors);
  write_gated(scratch, h + ulong(token) * a.rows, a.rows, row, a.tokens - token, thread_index);
}

// ---- routed experts: up to kMaxExperts blobs, wherever their slots lie ----

inline device const uchar* blob_of(uint expert, device const uchar* b0, device const uchar* b1,
                                   device const uchar* b2, device const uchar* b3,
                                   device const uchar* b4, device const uchar* b5,
                                   device const uchar* b6, device const uchar* b7) {
  switch (expert) {
    case 0:
      return b0;
    case 1:
      return b1;
    case 2:
      return b2;
    case 3:
      return b3;
    case 4:
      return b4;
    case 5:
      return b5;
    case 6:
      return b6;
    default:
      return b7;
  }
}

// Pair `index` of the operation's list, kept inside the rows.
inline int pair_at(device const int* pairs, int index, int limit) {
  const int pair = pairs[index];
  return uint(pair) < uint(limit) ? pair : 0;
}

// The blob of an expert. With a guard it lies in the slot that was looked up, of a slab that begins
// at b0; a slot outside of the slab counts as the first.
inline device const uchar* placed_blob(constant RoutedArguments& a, uint expert,
                                       device const int* slots, device const uchar* b0,
                                       device const uchar* b1, device const uchar* b2,
                                       device const uchar* b3, device const uchar* b4,
                                       device const uchar* b5, device const uchar* b6,
                                       device const uchar* b7) {
  if (!kGuarded) return blob_of(expert, b0, b1, b2, b3, b4, b5, b6, b7);
  const int slot = slots[a.first[expert]];
  const ulong stride = ulong(a.stride_high) << 32 | ulong(a.stride_low);
  return b0 + (uint(slot) < uint(a.slots) ? ulong(slot) : ulong(0)) * stride;
}

// h[start + i] of each expert's pairs i, from x[pair / k]. A pair outside the rows raises
// kFaultPair, a slot outside the slab kFaultSlot. With a guard nothing happens unless hit is 1.
// Grid: (width / kGemvBlock, most pairs of an expert / kGemvTokens or / 1, experts);
// kGemvSimdgroups * 32 threads. x lies at 16 bytes, the blobs' parts at even offsets. Constants as
// in gated, and kGuarded (if 0, slots and hit are not read).
kernel void routed_gated(device const uchar* b0 [[buffer(0)]], device const uchar* b1 [[buffer(1)]],
                         device const uchar* b2 [[buffer(2)]], device const uchar* b3 [[buffer(3)]],
                         device const uchar* b4 [[buffer(4)]], device const uchar* b5 [[buffer(5)]],
                         device const uchar* b6 [[buffer(6)]], device const uchar* b7 [[buffer(7)]],
                         device const float* x [[buffer(8)]], device const int* pairs [[buffer(9)]],
                         device float* h [[buffer(10)]], device int* faults [[buffer(11)]],
                         device const int* slots [[buffer(12)]],
                         device const int* hit [[buffer(13)]],
                         constant RoutedArguments& a [[buffer(14)]],
                         uint3 block [[threadgroup_position_in_grid]],
                         uint simdgroup [[simdgroup_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]]) {
  if (kGuarded && hit[0] != 1) return;
  const uint e = block.z;
  const int step = kManyTokens ? int(kGemvTokens) : 1;
  const int from = int(block.y) * step;
  const int count = min(step, a.count[e] - from);
  if (count <= 0) return;
  if (kGuarded && uint(slots[a.first[e]]) >= uint(a.slots)) {
    raise(faults, kFaultSlot, slots[a.first[e]], a.slots);
  }
  device const uchar* blob = placed_blob(a, e, slots, b0, b1, b2, b3, b4, b5, b6, b7);
  const Matrix gate = part_of(blob, a.gate), up = part_of(blob, a.up);
  device const float* own[kGemvTokens];
  UNROLL
  for (int t = 0; t < kGemvTokens; ++t) {
    const int index = a.first[e] + from + min(t, count - 1);
    if (uint(pairs[index]) >= uint(a.pairs)) raise(faults, kFaultPair, pairs[index], a.pairs);
    own[t] = x + ulong(pair_at(pairs, index, a.pairs) / a.k) * a.hidden;
  }
  const int row = int(block.x) * kGemvBlock + int(simdgroup) * kGemvRows;
  device float* to = h + ulong(a.start[e] + from) * a.width;
  if (kManyTokens) {
    gated_rows<kGemvTokens>(own, gate, up, to, a.hidden, a.width, row, count, lane);
  } else {
    gated_rows<1>(own, gate, up, to, a.hidden, a.width, row, count, lane);
  }
}

// The same for experts of many pairs.
// Grid: (width / (kTileRows / 2), most pairs of an expert / kTileTokens, experts); kTileThreads
// threads.
kernel void routed_gated_tiles(
    device const uchar* b0 [[buffer(0)]], device const uchar* b1 [[buffer(1)]],
    device const uchar* b2 [[buffer(2)]], device const uchar* b3 [[buffer(3)]],
    device const uchar* b4 [[buffer(4)]], device const uchar* b5 [[buffer(5)]],
    device const uchar* b6 [[buffer(6)]], device const uchar* b7 [[buffer(7)]],
    device const float* x [[buffer(8)]], device const int* pairs [[buffer(9)]],
    device float* h [[buffer(10)]], device int* faults [[buffer(11)]],
    constant RoutedArguments& a [[buffer(12)]], uint3 block [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float4 tile[TILE_VECTORS];
  threadgroup float* scratch = (threadgroup float*)tile;
  threadgroup float factors[kTileTokens];
  const uint e = block.z;
  const int from = int(block.y) * kTileTokens;
  const int count = a.count[e] - from;
  if (count <= 0) return;
  device const uchar* blob = blob_of(e, b0, b1, b2, b3, b4, b5, b6, b7);
  const int index = a.first[e] + from + min(int(thread_index) / 4, count - 1);
  if (uint(pairs[index]) >= uint(a.pairs)) raise(faults, kFaultPair, pairs[index], a.pairs);
  const int token = pair_at(pairs, index, a.pairs) / a.k;
  const int row = int(block.x) * (kTileRows / 2);
  const bool second = simdgroup >= 2;
  multiply_tile(gated_row(part_of(blob, a.gate), part_of(blob, a.up), second, a.hidden, a.width,
                          row, thread_index),
                second ? kUpBits : kBits, second ? kUpGroup : kGroup, second ? kUpWords : kWords,
                a.hidden, x + ulong(token) * a.hidden, (device const ushort*)0, 0.0f, thread_index,
                simdgroup, scratch, factors);
  write_gated(scratch, h + ulong(a.start[e] + from) * a.width, a.width, row, count, thread_index);
}

// Where the output of pair i of the tile goes: its own row of the tile if the rows are to be
// accumulated, else the row of the pair.
inline ulong output_row(constant RoutedArguments& a, device const int* pairs, uint expert, int i) {
  if (a.accumulate) return a.start[expert] + i;
  return pair_at(pairs, a.first[expert] + i, a.pairs);
}

template <int kTokens>
inline void down_rows(device const float* h, Matrix down, device const int* pairs,
                      device float* out, constant RoutedArguments& a, uint expert, int from,
                      int row, uint lane) {
  const int count = min(kTokens, a.count[expert] - from);
  if (count <= 0 || row >= a.hidden) return;
  device const float* own[kTokens];
  UNROLL
  for (int t = 0; t < kTokens; ++t) {
    own[t] = h + ulong(a.start[expert] + from + min(t, count - 1)) * a.width;
  }
  float sums[kGemvRows * kTokens];
  multiply<kTokens>(down, kBits, kGroup, kWords, a.width, row, a.hidden, own,
                    (device const ushort*)0, 0.0f, lane, sums);
  UNROLL
  for (int i = 0; i < kGemvRows * kTokens; ++i) {
    const int r = row + i / kTokens, t = i % kTokens;
    if (int(lane) != i || r >= a.hidden || t >= count) continue;
    out[output_row(a, pairs, expert, from + t) * a.hidden + r] = sums[i];
  }
}

// out[output_row] = down h[start + i] of each expert's pairs i.
// Grid: (hidden / kGemvBlock, most pairs of an expert / kGemvTokens or / 1, experts);
// kGemvSimdgroups * 32 threads. Buffers as above with h read and out in place of the faults.
// Constants: kBits, kGroup, kWords of down, kManyTokens, kGuarded; kNorm is 0.
kernel void routed_down(device const uchar* b0 [[buffer(0)]], device const uchar* b1 [[buffer(1)]],
                        device const uchar* b2 [[buffer(2)]], device const uchar* b3 [[buffer(3)]],
                        device const uchar* b4 [[buffer(4)]], device const uchar* b5 [[buffer(5)]],
                        device const uchar* b6 [[buffer(6)]], device const uchar* b7 [[buffer(7)]],
                        device const float* h [[buffer(8)]], device const int* pairs [[buffer(9)]],
                        device float* out [[buffer(10)]], device const int* slots [[buffer(11)]],
                        device const int* hit [[buffer(12)]],
                        constant RoutedArguments& a [[buffer(13)]],
                        uint3 block [[threadgroup_position_in_grid]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]]) {
  if (kGuarded && hit[0] != 1) return;
  const uint e = block.z;
  const int row = int(block.x) * kGemvBlock + int(simdgroup) * kGemvRows;
  const Matrix down = part_of(placed_blob(a, e, slots, b0, b1, b2, b3, b4, b5, b6, b7), a.down);
  if (kManyTokens) {
    down_rows<kGemvTokens>(h, down, pairs, out, a, e, int(block.y) * kGemvTokens, row, lane);
  } else {
    down_rows<1>(h, down, pairs, out, a, e, int(block.y), row, lane);
  }
}

// The same for experts of many pairs.
// Grid: (hidden / kTileRows, most pairs of an expert / kTileTokens, experts); kTileThreads threads.
kernel void routed_down_tiles(
    device const uchar* b0 [[buffer(0)]], device const uchar* b1 [[buffer(1)]],
    device const uchar* b2 [[buffer(2)]], device const uchar* b3 [[buffer(3)]],
    device const uchar* b4 [[buffer(4)]], device const uchar* b5 [[buffer(5)]],
    device const uchar* b6 [[buffer(6)]], device const uchar* b7 [[buffer(7)]],
    device const float* h [[buffer(8)]], device const int* pairs [[buffer(9)]],
    device float* out [[buffer(10)]], constant RoutedArguments& a [[buffer(11)]],
    uint3 block [[threadgroup_position_in_grid]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float4 tile[TILE_VECTORS];
  threadgroup float* scratch = (threadgroup float*)tile;
  threadgroup float factors[kTileTokens];
  const uint e = block.z;
  const int from = int(block.y) * kTileTokens;
  const int count = a.count[e] - from;
  if (count <= 0) return;
  device const uchar* blob = blob_of(e, b0, b1, b2, b3, b4, b5, b6, b7);
  const int row = int(block.x) * kTileRows;
  const int own_row = min(row + int(thread_index) / 2, a.hidden - 1);
  const int own = a.start[e] + from + min(int(thread_index) / 4, count - 1);
  multiply_tile(row_of(part_of(blob, a.down), kBits, kGroup, a.width, own_row), kBits, kGroup,
                kWords, a.width, h + ulong(own) * a.width, (device const ushort*)0, 0.0f,
                thread_index, simdgroup, scratch, factors);
  for (int i = int(thread_index); i < kTileTokens * kTileRows; i += kTileThreads) {
    const int t = i / kTileRows, n = i % kTileRows;
    if (t >= count || row + n >= a.hidden) continue;
    out[output_row(a, pairs, e, from + t) * a.hidden + row + n] = scratch[i];
  }
}

// out[row] += weight * output of each pair of one expert. A row has at most one pair with an expert,
// so the launches of the tile's experts, one after another, sum a row's experts in order.
// Grid: (hidden / 128, pairs of the expert); 128 threads. y is f32[tile pairs, hidden].
kernel void accumulate(device const float* y [[buffer(0)]], device const int* pairs [[buffer(1)]],
                       device const float* weights [[buffer(2)]], device float* out [[buffer(3)]],
                       constant AccumulateArguments& a [[buffer(4)]],
                       uint3 block [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]]) {
  const int column = int(block.x) * 128 + int(thread_index), i = int(block.y);
  if (column >= a.hidden) return;
  const int pair = pair_at(pairs, a.first + i, a.pairs);
  device float* to = out + ulong(pair / a.k) * a.hidden + column;
  *to = fma(weights[pair], y[ulong(a.start + i) * a.hidden + column], *to);
}

// slots[j] = table[ids[j]], or -1 for an id outside the table; hit = 1 if none of them is negative.
// Grid: 1; 32 threads. Offsets: int32 4 bytes, the table 2.
kernel void look_up_slots(device const int* ids [[buffer(0)]],
                          device const short* table [[buffer(1)]], device int* slots [[buffer(2)]],
                          device int* hit [[buffer(3)]], constant SlotArguments& a [[buffer(4)]],
                          uint lane [[thread_index_in_simdgroup]]) {
  int least = 0;
  for (int j = int(lane); j < a.k; j += kLanes) {
    const int id = ids[j];
    const int slot = uint(id) < uint(a.experts) ? int(table[id]) : -1;
    slots[j] = slot;
    least = min(least, slot);
  }
  least = simd_min(least);
  if (lane == 0) hit[0] = least < 0 ? 0 : 1;
}
