// The product of tiles by the matrix units of Metal 4 (matmul2d), instead of simdgroup matrices.
//
// It compiles only where the Metal compiler has tensors (language version 4.0), and is used only if
// the launches set kTensor, which they do on a GPU whose traits say tensor_ops. It has never been
// compiled: the Linux checks have no tensors. So a device that opens compares it with simdgroup
// matrices first. Both tiles are float16, whose range activations exceed: each row is brought near
// one by a power of two, and back in the sums.
#pragma once

#include "common.h"

#if defined(__HAVE_TENSOR__)
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>

#include <metal_tensor>

// The power of two that brings a row's largest value to 1 to 2, from the four threads that load it.
inline float row_scale(device const float* x, device const ushort* norm, int cols,
                       uint thread_index) {
  float largest = 0.0f;
  for (int c = int(thread_index) % 4 * 8; c < cols; c += TILE_COLUMNS) {
    float own[8];
    load_activations(x + c, norm + c, own);
    UNROLL
    for (int i = 0; i < 8; ++i) largest = max(largest, fabs(own[i]));
  }
  largest = max(largest, simd_shuffle_xor(largest, 1));
  largest = max(largest, simd_shuffle_xor(largest, 2));
  // 2^-e of the exponent field e, kept where neither it nor its inverse is subnormal.
  const uint field = clamp(as_type<uint>(largest) >> 23, 1u, 253u);
  return as_type<float>((254u - field) << 23);
}

// As multiply_tile, with the tiles stored row after row.
inline void multiply_tile_tensor(Matrix row, int bits, int group, bool words, int cols,
                                 device const float* x, device const ushort* norm, float eps,
                                 uint thread_index, threadgroup float* scratch,
                                 threadgroup float* factors) {
  using Tile = tensor<threadgroup half, dextents<int32_t, 2>, tensor_inline>;
  threadgroup half* xs = (threadgroup half*)scratch;
  threadgroup half* ws = xs + kTileTokens * TILE_COLUMNS;
  Tile x_tile(xs, dextents<int32_t, 2>(TILE_COLUMNS, kTileTokens));
  Tile w_tile(ws, dextents<int32_t, 2>(TILE_COLUMNS, kTileRows));
  constexpr auto descriptor = mpp::tensor_ops::matmul2d_descriptor(
      kTileTokens, kTileRows, TILE_COLUMNS, false, true, false,
      mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate);
  mpp::tensor_ops::matmul2d<descriptor, execution_simdgroups<kTileThreads / kLanes>> product;
  auto sums = product.get_destination_cooperative_tensor<Tile, Tile, float>();
  UNROLL
  for (ushort i = 0; i < sums.get_capacity(); ++i) {
    if (sums.is_valid_element(i)) sums[i] = 0.0f;
  }
  const int n = int(thread_index) / 2, n_column = int(thread_index) % 2 * COLUMNS;
  const int t = int(thread_index) / 4, t_column = int(thread_index) % 4 * 8;
  const float scale = row_scale(x, norm, cols, thread_index);
  if (thread_index % 4 == 0) factors[thread_index / 4] = 1.0f / scale;
  float squares = 0.0f;
  for (int c = 0; c < cols; c += TILE_COLUMNS) {
    half weights[COLUMNS];
    expand(row, bits, group, words, c + n_column, weights);
    float own[8];
    squares += load_activations(x + c + t_column, norm + c + t_column, own);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL
    for (int i = 0; i < COLUMNS; ++i) ws[n * TILE_COLUMNS + n_column + i] = weights[i];
    UNROLL
    for (int i = 0; i < 8; ++i) xs[t * TILE_COLUMNS + t_column + i] = half(own[i] * scale);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    product.run(x_tile, w_tile, sums);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  UNROLL
  for (ushort i = 0; i < sums.get_capacity(); ++i) {
    if (!sums.is_valid_element(i)) continue;
    const auto index = sums.get_multidimensional_index(i);  // column, row
    scratch[index[1] * kTileRows + index[0]] = sums[i] * factors[index[1]];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  finish_factors(squares, cols, eps, thread_index, factors);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
#endif
