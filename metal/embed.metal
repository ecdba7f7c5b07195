// Embedding rows, and zeros.
#include "affine.h"

// out[r] = row tokens[r] of the table, times scale. A token outside the table raises kFaultToken
// and gives row 0.
// Grid: (cols / 16 / 64, rows); 64 threads of 16 columns each. Offsets: table even, tokens and out
// 4 bytes. Constants: kBits, kGroup.
kernel void embed_rows(device const ushort* weight [[buffer(0)]],
                       device const ushort* scales [[buffer(1)]],
                       device const ushort* biases [[buffer(2)]],
                       device const int* tokens [[buffer(3)]], device float* out [[buffer(4)]],
                       device int* faults [[buffer(5)]], constant EmbedArguments& a [[buffer(6)]],
                       uint3 block [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]]) {
  const int c = (int(block.x) * 64 + int(thread_index)) * COLUMNS;
  if (c >= a.cols) return;
  int token = tokens[block.y];
  if (uint(token) >= uint(a.rows)) {
    raise(faults, kFaultToken, token, a.rows);
    token = 0;
  }
  Matrix m;
  m.weight = weight;
  m.scales = scales;
  m.biases = biases;
  m = row_of(m, kBits, kGroup, a.cols, token);
  const float scale = bf16(m.scales[c / kGroup]);
  const float bias = bf16(m.biases[c / kGroup]);
  const int per_word = 16 / kBits;
  device float* to = out + ulong(block.y) * a.cols + c;
  for (int i = 0; i < COLUMNS; ++i) {
    const ushort word = m.weight[(c + i) / per_word];
    const ushort code = (word >> (kBits * (i % per_word))) & ((1 << kBits) - 1);
    to[i] = fma(scale, float(code), bias) * a.scale;
  }
}

// out = 0. Grid: count / 256; 256 threads.
kernel void zero(device float* out [[buffer(0)]], constant ZeroArguments& a [[buffer(1)]],
                 uint index [[thread_position_in_grid]]) {
  if (int(index) < a.count) out[index] = 0.0f;
}
