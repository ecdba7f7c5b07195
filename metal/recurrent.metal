// Mixers that carry a state from token to token: the convolution and the gated delta rule.
#include "common.h"

// ---- convolution ----

inline float tail_value(device const uchar* tail, ulong element) {
  return kHalfCache ? float(((device const half*)tail)[element])
                    : ((device const float*)tail)[element];
}

// A value as the tail would give it back.
inline float rounded(float x) {
  return kHalfCache ? float(half(x)) : x;
}

inline void keep(device uchar* tail, ulong element, float x) {
  if (kHalfCache) {
    ((device half*)tail)[element] = half(x);
  } else {
    ((device float*)tail)[element] = x;
  }
}

// kConvolutionRows rows of one channel: out = silu of the weighted sum of the row and those before
// it, which are rows of the tail where x has none. If these are all rows, the tail moves on too.
// Grid: (channels / kConvolutionThreads, rows / kConvolutionRows); kConvolutionThreads threads.
// Offsets: float32 4 bytes, BF16 2, the tail one element. Constants: kHalfCache.
kernel void convolution(device const float* x [[buffer(0)]],
                        device const ushort* weight [[buffer(1)]], device uchar* tail [[buffer(2)]],
                        device float* out [[buffer(3)]],
                        constant ConvolutionArguments& a [[buffer(4)]],
                        uint3 block [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]]) {
  const int channel = int(block.x) * kConvolutionThreads + int(thread_index);
  if (channel >= a.channels) return;
  const int first = int(block.y) * kConvolutionRows;
  const int end = min(first + kConvolutionRows, a.rows);
  const int before = a.taps - 1;
  // Both end with the token itself; what lies before the first tap is never used.
  float taps[kConvolutionTaps], seen[kConvolutionTaps];
  UNROLL
  for (int i = 0; i < kConvolutionTaps; ++i) {
    const int j = i - kConvolutionTaps + a.taps;
    taps[i] = j < 0 ? 0.0f : bf16(weight[ulong(channel) * a.taps + max(j, 0)]);
    seen[i] = 0.0f;
    if (j < 0 || j >= before) continue;
    const int row = first + j - before;
    seen[i] = row < 0 ? tail_value(tail, ulong(row + before) * a.channels + channel)
                      : rounded(x[ulong(row) * a.channels + channel]);
  }
  for (int row = first; row < end; ++row) {
    const ulong at = ulong(row) * a.channels + channel;
    const float own = x[at];
    seen[kConvolutionTaps - 1] = own;
    float sum = 0.0f;
    UNROLL
    for (int i = 0; i < kConvolutionTaps; ++i) {
      if (i >= kConvolutionTaps - a.taps) sum = fma(taps[i], seen[i], sum);
    }
    out[at] = silu(sum);
    UNROLL
    for (int i = 1; i < kConvolutionTaps - 1; ++i) seen[i - 1] = seen[i];
    seen[kConvolutionTaps - 2] = rounded(own);
  }
  if (a.rows > kConvolutionRows) return;
  UNROLL
  for (int i = 0; i < kConvolutionTaps - 1; ++i) {
    const int j = i - kConvolutionTaps + a.taps;
    if (j >= 0) keep(tail, ulong(j) * a.channels + channel, seen[i]);
  }
}

// The tail after more rows than it has: its rows are the last of x.
// Grid: (channels / kConvolutionThreads, taps - 1); kConvolutionThreads threads. Offsets and
// constants as above.
kernel void convolution_tail(device const float* x [[buffer(0)]], device uchar* tail [[buffer(1)]],
                             constant ConvolutionArguments& a [[buffer(2)]],
                             uint3 block [[threadgroup_position_in_grid]],
                             uint thread_index [[thread_index_in_threadgroup]]) {
  const int channel = int(block.x) * kConvolutionThreads + int(thread_index);
  if (channel >= a.channels) return;
  const int row = int(block.y);
  keep(tail, ulong(row) * a.channels + channel,
       x[ulong(a.rows - a.taps + 1 + row) * a.channels + channel]);
}

// ---- the gated delta rule ----

// log(1 + exp(u)) = max(u, 0) + 2 atanh(e / (2 + e)) with e = exp(-|u|), by a series that is exact
// to a rounding: a logarithm would lose small values, and every later token has their error.
inline float softplus(float u) {
  const float e = precise::exp(-fabs(u));
  const float s = e / (2.0f + e), t = s * s;
  float series = 1.0f / 15.0f;
  series = fma(series, t, 1.0f / 13.0f);
  series = fma(series, t, 1.0f / 11.0f);
  series = fma(series, t, 1.0f / 9.0f);
  series = fma(series, t, 1.0f / 7.0f);
  series = fma(series, t, 1.0f / 5.0f);
  series = fma(series, t, 1.0f / 3.0f);
  series = fma(series, t, 1.0f);
  return max(u, 0.0f) + 2.0f * s * series;
}

// In place: the queries of a row become l2(q) * key_dim^-1/2 and its keys l2(k), with the product
// of both in kq[row, key head]; alpha becomes the decay and beta its sigmoid.
// Grid: ((key_heads + 1) / kDeltaSimdgroups, rows); kDeltaSimdgroups * 32 threads. A simdgroup
// takes a key head, the last one the decays. Offsets: 4 bytes.
kernel void delta_prepare(device float* mixed [[buffer(0)]], device float* alpha [[buffer(1)]],
                          device float* beta [[buffer(2)]], device const float* rate [[buffer(3)]],
                          device const float* dt_bias [[buffer(4)]], device float* kq [[buffer(5)]],
                          constant DeltaArguments& a [[buffer(6)]],
                          uint3 block [[threadgroup_position_in_grid]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
  const int item = int(block.x) * kDeltaSimdgroups + int(simdgroup);
  const ulong row = block.y;
  if (item > a.key_heads) return;
  if (item == a.key_heads) {
    for (int h = int(lane); h < a.value_heads; h += kLanes) {
      const ulong at = row * a.value_heads + h;
      alpha[at] = precise::exp(-rate[h] * softplus(alpha[at] + dt_bias[h]));
      beta[at] = sigmoid(beta[at]);
    }
    return;
  }
  const int keys = a.key_heads * a.key_dim;
  device float* q = mixed + row * (2 * keys + a.value_heads * a.value_dim) + item * a.key_dim;
  device float* k = q + keys;
  float qs = 0.0f, ks = 0.0f, both = 0.0f;
  for (int i = int(lane); i < a.key_dim; i += kLanes) {
    qs = fma(q[i], q[i], qs);
    ks = fma(k[i], k[i], ks);
    both = fma(q[i], k[i], both);
  }
  const float q_factor = rsqrt(simd_sum(qs) + a.eps) * rsqrt(float(a.key_dim));
  const float k_factor = rsqrt(simd_sum(ks) + a.eps);
  both = simd_sum(both);
  for (int i = int(lane); i < a.key_dim; i += kLanes) {
    q[i] *= q_factor;
    k[i] *= k_factor;
  }
  if (lane == 0) kq[row * a.key_heads + item] = both * q_factor * k_factor;
}

// Four of the keys' dimensions that a lane holds of each row of a state: 4 * lane + 128 * chunk and
// on.
#define KEY_CHUNKS 2

// What a token brings to kDeltaRows rows of a head's state.
struct DeltaToken {
  float4 q[KEY_CHUNKS], k[KEY_CHUNKS];
  float4 v;
  float kq, decay, beta;
};

// Views of one head and kDeltaRows of its value rows, at the first token.
struct DeltaInputs {
  device const float* q;
  device const float* k;
  device const float* v;
  device const float* kq;
  device const float* alpha;
  device const float* beta;
};

inline DeltaToken token_at(DeltaInputs in, constant DeltaArguments& a, int row, uint lane) {
  const ulong at = ulong(row) * (2 * a.key_heads * a.key_dim + a.value_heads * a.value_dim);
  DeltaToken token;
  UNROLL
  for (int j = 0; j < KEY_CHUNKS; ++j) {
    const int d = j * 128 + int(lane) * 4;
    token.q[j] = float4(0.0f);
    token.k[j] = float4(0.0f);
    if (j >= kHeadChunks || d >= a.key_dim) continue;
    token.q[j] = *(device const float4*)(in.q + at + d);
    token.k[j] = *(device const float4*)(in.k + at + d);
  }
  token.v = *(device const float4*)(in.v + at);
  token.kq = in.kq[ulong(row) * a.key_heads];
  token.decay = in.alpha[ulong(row) * a.value_heads];
  token.beta = in.beta[ulong(row) * a.value_heads];
  return token;
}

// All tokens through kDeltaRows rows of a head's state, which stay in registers: S = g S + d k^T
// with d = b (v - g S k), and out = S q. That is g (S q) + d (k . q) with the S before the token, so
// that both products with S are under way at once; the next token is loaded meanwhile.
// Grid: (value_dim / kDeltaBlock, value_heads); kDeltaSimdgroups * 32 threads. Offsets: mixed,
// state and out 16 bytes, the rest 4; dimensions are multiples of 32 up to 256. Constants:
// kHeadChunks (1 or 2, of key_dim).
kernel void delta_rule(device const float* mixed [[buffer(0)]],
                       device const float* alpha [[buffer(1)]],
                       device const float* beta [[buffer(2)]], device const float* kq [[buffer(3)]],
                       device float* state [[buffer(4)]], device float* out [[buffer(5)]],
                       constant DeltaArguments& a [[buffer(6)]],
                       uint3 block [[threadgroup_position_in_grid]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
  const int head = int(block.y), key_head = head / (a.value_heads / a.key_heads);
  const int value = int(block.x) * kDeltaBlock + int(simdgroup) * kDeltaRows;
  const int keys = a.key_heads * a.key_dim;
  DeltaInputs in;
  in.q = mixed + key_head * a.key_dim;
  in.k = in.q + keys;
  in.v = mixed + 2 * keys + head * a.value_dim + value;
  in.kq = kq + key_head;
  in.alpha = alpha + head;
  in.beta = beta + head;
  device float* own = state + (ulong(head) * a.value_dim + value) * a.key_dim;
  float4 s[kDeltaRows][KEY_CHUNKS];
  UNROLL
  for (int r = 0; r < kDeltaRows; ++r) {
    UNROLL
    for (int j = 0; j < KEY_CHUNKS; ++j) {
      const int d = j * 128 + int(lane) * 4;
      s[r][j] = float4(0.0f);
      if (j < kHeadChunks && d < a.key_dim) {
        s[r][j] = *(device const float4*)(own + r * a.key_dim + d);
      }
    }
  }
  DeltaToken token = token_at(in, a, 0, lane);
  for (int row = 0; row < a.rows; ++row) {
    const DeltaToken next = token_at(in, a, min(row + 1, a.rows - 1), lane);
    float4 recalled, answered;
    UNROLL
    for (int r = 0; r < kDeltaRows; ++r) {
      float with_k = dot(s[r][0], token.k[0]), with_q = dot(s[r][0], token.q[0]);
      if (kHeadChunks > 1) {
        with_k += dot(s[r][1], token.k[1]);
        with_q += dot(s[r][1], token.q[1]);
      }
      recalled[r] = simd_sum(with_k);
      answered[r] = simd_sum(with_q);
    }
    const float4 change = (token.v - recalled * token.decay) * token.beta;
    if (lane == 0) {
      *(device float4*)(out + (ulong(row) * a.value_heads + head) * a.value_dim + value) =
          answered * token.decay + change * token.kq;
    }
    UNROLL
    for (int r = 0; r < kDeltaRows; ++r) {
      UNROLL
      for (int j = 0; j < KEY_CHUNKS; ++j) {
        if (j < kHeadChunks) s[r][j] = s[r][j] * token.decay + token.k[j] * change[r];
      }
    }
    token = next;
  }
  UNROLL
  for (int r = 0; r < kDeltaRows; ++r) {
    UNROLL
    for (int j = 0; j < KEY_CHUNKS; ++j) {
      const int d = j * 128 + int(lane) * 4;
      if (j < kHeadChunks && d < a.key_dim) {
        *(device float4*)(own + r * a.key_dim + d) = s[r][j];
      }
    }
  }
}

// out = rms(out, norm) * silu(z), head by head.
// Grid: (value_heads / kDeltaSimdgroups, rows); kDeltaSimdgroups * 32 threads. Offsets: float32 4
// bytes, BF16 2.
kernel void delta_finish(device float* out [[buffer(0)]], device const float* z [[buffer(1)]],
                         device const ushort* norm [[buffer(2)]],
                         constant DeltaArguments& a [[buffer(3)]],
                         uint3 block [[threadgroup_position_in_grid]],
                         uint simdgroup [[simdgroup_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]]) {
  const int head = int(block.x) * kDeltaSimdgroups + int(simdgroup);
  if (head >= a.value_heads) return;
  const ulong at = (ulong(block.y) * a.value_heads + head) * a.value_dim;
  float squares = 0.0f;
  for (int i = int(lane); i < a.value_dim; i += kLanes) {
    squares = fma(out[at + i], out[at + i], squares);
  }
  const float factor = rsqrt(simd_sum(squares) / float(a.value_dim) + a.eps);
  for (int i = int(lane); i < a.value_dim; i += kLanes) {
    out[at + i] *= factor * bf16(norm[i]) * silu(z[at + i]);
  }
}
