// What all kernels share: function constants, BF16, activations, faults, reductions.
#pragma once

#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "arguments.h"

using namespace metal;

// Set by the launches; a kernel reads those that its comment names. The indices are one list for
// the whole library.

// Bits of a code of the (first) matrix: 2, 4 or 8. Columns that share a scale: 32, 64 or 128.
// Whether weights lie at multiples of 4 bytes, and not only of 2.
constant int kBits [[function_constant(0)]];
constant int kGroup [[function_constant(1)]];
constant int kWords [[function_constant(2)]];
// The same of the second matrix of a pair.
constant int kUpBits [[function_constant(3)]];
constant int kUpGroup [[function_constant(4)]];
constant int kUpWords [[function_constant(5)]];
// Whether x is normalized by a weight first.
constant int kNorm [[function_constant(6)]];
// Whether a simdgroup takes kGemvTokens rows of x at a time, and not one.
constant int kManyTokens [[function_constant(7)]];
// Whether the activation is SiLU, and not tanh-GELU.
constant int kSilu [[function_constant(8)]];
// Whether keys and values are float16, and not float32.
constant int kHalfCache [[function_constant(9)]];
// Chunks of 128 dimensions that cover a head: 1, 2, 4 or 8.
constant int kHeadChunks [[function_constant(10)]];
// Whether tiles multiply by matmul2d, see tensor.h.
constant int kTensor [[function_constant(11)]];
// Whether a scalar gate scales each row of products.
constant int kGated [[function_constant(12)]];
// Whether routed experts lie in the slots that were looked up, and run only if all were found.
constant int kGuarded [[function_constant(13)]];

// Arrays of a thread stay in registers only where every index is known: loops over them unroll.
#define UNROLL _Pragma("clang loop unroll(full)")

// Below every score, and finite: fast math may assume that there are no infinities.
#define LOWEST_SCORE (-3.0e38f)

inline float bf16(ushort bits) {
  return as_type<float>(uint(bits) << 16);
}

inline bool is_finite(float x) {
  return (as_type<uint>(x) & 0x7f800000u) != 0x7f800000u;
}

// Ordered as the floats are; 0 for NaN, which is below everything.
inline uint order_of(float x) {
  const uint bits = as_type<uint>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0;
  if (bits == 0x80000000u) return 0x80000000u;  // -0 is equal to 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// 0.5 u (1 + tanh(v)) = u / (1 + exp(-2 v)), which keeps its far negative tail; or SiLU.
inline float activate(float u) {
  const float v = kSilu ? u : 1.5957691216f * (u + 0.044715f * u * u * u);
  return u / (1.0f + precise::exp(-v));
}

inline float sigmoid(float u) {
  return 1.0f / (1.0f + precise::exp(-u));
}

inline float silu(float u) {
  return u / (1.0f + precise::exp(-u));
}

// Several threadgroups may be here at once: what one of them says is as good as what another does.
inline void raise(device int* faults, int fault, int value, int limit) {
  device atomic_int* words = reinterpret_cast<device atomic_int*>(faults + 3 * fault);
  atomic_store_explicit(words + 1, value, memory_order_relaxed);
  atomic_store_explicit(words + 2, limit, memory_order_relaxed);
  atomic_store_explicit(words, 1, memory_order_relaxed);
}

// The sum over a threadgroup, in every thread. `shared` holds one float a simdgroup; all threads
// call it, and may call it again with the same array.
inline float threadgroup_sum(float value, threadgroup float* shared, uint simdgroup,
                             uint simdgroups, uint lane) {
  const float part = simd_sum(value);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 0) shared[simdgroup] = part;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return simd_sum(lane < simdgroups ? shared[lane] : 0.0f);
}
