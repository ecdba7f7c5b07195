// The operations a forward pass may encode, at the granularity at which devices fuse kernels.
//
// Conventions. A matrix is row-major. `rows` is the number of tokens: 1 in decode, more in
// prefill; a device may choose another kernel for each, and the CPU device gives every row the
// same bytes whatever the number of rows. Activations are float32. "bf16[n]" is a vector of BF16
// at any even byte offset. rms(x, w)[i] = x[i] / sqrt(mean(x^2) + eps) * w[i]; rms(x) is the same
// without w. Outputs never alias inputs unless an operation says "in place". Every operation is
// deterministic: the same input gives the same bytes, whatever the number of threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

namespace mference {

class Buffer;

// A byte range of a buffer.
struct View {
  const Buffer* buffer = nullptr;
  size_t offset = 0;
  size_t size = 0;

  View at(size_t delta, size_t bytes) const { return {buffer, offset + delta, bytes}; }
  explicit operator bool() const { return buffer != nullptr; }
};

// An affine-quantized matrix [rows, cols]: w[r, j] = scale[r, j / group] * q[r, j] + bias[r, j /
// group] with unsigned codes q of `bits` bits, packed low bits first in little-endian 32-bit
// words. Scales and biases are BF16. cols is a multiple of group. Offsets are even.
struct Affine {
  View weight, scales, biases;
  int rows = 0;
  int cols = 0;
  int bits = 4;
  int group = 64;
};

enum class Activation { kGeluTanh, kSilu };

enum class KvType { kFloat16, kFloat32 };

// One layer's keys and values: two arrays [capacity, heads, dim]. Position p lies in row
// p mod capacity, so a capacity below the context length makes a ring.
struct KvCache {
  View keys, values;
  KvType type = KvType::kFloat16;
  int capacity = 0;
  int heads = 0;
  int dim = 0;
};

// out[r] = dequantized table row tokens[r], times scale.
struct EmbedRows {
  Affine table;
  View tokens;  // i32[rows]
  View out;     // f32[rows, cols]
  int rows = 0;
  float scale = 1.0f;
};

// a = rms(x, norm); out of each part = its matrix times a. All matrices have the columns of x.
struct NormProject {
  static constexpr int kMaxParts = 4;
  struct Part {
    Affine matrix;
    View out;  // f32[rows, matrix rows]
  };
  View x;     // f32[rows, cols]
  View norm;  // bf16[cols]
  std::array<Part, kMaxParts> parts;
  int count = 0;  // of parts, at least one
  int rows = 0;
  float eps = 1e-6f;
};

// For each row and head: q_out = rope(rms(q, q_norm)); key = rope(rms(k, k_norm)) and value = rms(v),
// or v itself without norm_values, are written to the cache at position `position + row`. v may be
// the same view as k (the raw projection serves both). rope rotates pairs (i, i + distance) for i <
// rotated: lo' = lo cos - hi sin, hi' = lo sin + hi cos; the other dimensions pass unchanged.
struct QkvEpilogue {
  View q;               // f32[rows, heads, q_width]: a head's query comes first
  View q_out;           // f32[rows, heads, dim]; may be q if q_width is dim
  View k, v;            // f32[rows, cache.heads, dim]
  View q_norm, k_norm;  // bf16[dim]
  View rope;            // f32[rows, rotated, 2]: cos, sin
  KvCache cache;
  int rows = 0;
  int heads = 0;
  int q_width = 0;
  int rotated = 0;
  int distance = 0;  // at least rotated; distance + rotated is at most dim
  int position = 0;
  bool norm_values = true;
  float eps = 1e-6f;
};

// out[r, h] = sum_p softmax_p(scale * q[r, h] . key[p, h / (heads / cache.heads)]) value[p], over
// positions p <= position + r and, if window > 0, p > position + r - window. The cache already
// holds the rows' own keys and values.
struct Attention {
  View q;    // f32[rows, heads, dim]
  View out;  // f32[rows, heads, dim]
  KvCache cache;
  int rows = 0;
  int heads = 0;
  int position = 0;
  int window = 0;
  float scale = 1.0f;
};

// x *= sigmoid(gate), head by head and in place: the end of a gated attention. The gate of a head is
// the last dim of its width values, so that the raw projection of queries and gates can be read.
struct GateHeads {
  View x;     // f32[rows, heads, dim], in place
  View gate;  // f32[rows, heads, width]
  int rows = 0;
  int heads = 0;
  int dim = 0;
  int width = 0;
};

// out[t, c] = silu(sum_j weight[c, j] * h[t + j, c]), where h is the tail followed by the rows of x:
// a causal convolution of each channel with itself. The tail becomes the last taps - 1 rows of h. A
// row before the token's own enters as the tail holds it, rounded to its type, so that it does not
// matter in which pass that row came.
struct ConvolutionTail {
  View x;       // f32[rows, channels]
  View weight;  // bf16[channels, taps], the last tap is the token itself
  View tail;    // `type`[taps - 1, channels], in place, oldest first
  View out;     // f32[rows, channels]
  KvType type = KvType::kFloat16;
  int rows = 0;
  int channels = 0;
  int taps = 0;
};

// The gated delta rule, one row after another. With l2(u) = u / sqrt(sum(u^2) + eps), for each value
// head h, which reads key head h / (value_heads / key_heads):
//   q = l2(q of mixed) * key_dim^-1/2;  k = l2(k of mixed);  v = v of mixed
//   g = exp(-rate[h] * softplus(alpha[h] + dt_bias[h]));  b = sigmoid(beta[h])
//   S = g S;  d = b (v - S k);  S = S + d k^T;  y = S q
//   out = rms(y, norm) * silu(z)
// A chunk of rows is the same as one row after another, to the byte on the CPU.
struct GatedDelta {
  View mixed;        // f32[rows, 2 * key_heads * key_dim + value_heads * value_dim]: q, k, v; lost
  View alpha, beta;  // f32[rows, value_heads]; lost
  View rate;         // f32[value_heads]: exp(A_log)
  View dt_bias;      // f32[value_heads]
  View z;            // f32[rows, value_heads, value_dim]
  View norm;         // bf16[value_dim]
  View state;        // f32[value_heads, value_dim, key_dim], in place
  View out;          // f32[rows, value_heads, value_dim]
  int rows = 0;
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  float eps = 1e-6f;
};

// out = W x.
struct Project {
  View x;  // f32[rows, cols]
  Affine weight;
  View out;  // f32[rows, weight.rows]
  int rows = 0;
};

// Post-attention setup and router (Gemma 4):
//   x += rms(attention, post_attention)                    in place
//   dense_in = rms(x, pre_dense);  routed_in = rms(x, pre_routed)
//   r = router * (rms(x) * router_scale * hidden^-1/2)
//   ids = the k largest r, descending, lower id first among equals
//   weights = softmax(r[ids]) * expert_scale[ids]
struct PostAttentionRouter {
  View x;                                      // f32[rows, hidden], in place
  View attention;                              // f32[rows, hidden]
  View post_attention, pre_dense, pre_routed;  // bf16[hidden]
  View router_scale;                           // bf16[hidden]
  View expert_scale;                           // bf16[experts]
  Affine router;                               // [experts, hidden]
  View dense_in, routed_in;                    // f32[rows, hidden]
  View ids;                                    // i32[rows, k]
  View weights;                                // f32[rows, k]
  int rows = 0;
  int hidden = 0;
  int k = 0;
  float eps = 1e-6f;
};

// Residual and router:
//   x += update                                            in place
//   normed = rms(x, norm);  r = router * normed
//   ids = the k largest r, descending, lower id first among equals;  weights = softmax(r[ids])
struct ResidualRouter {
  View x;         // f32[rows, hidden], in place
  View update;    // f32[rows, hidden]
  View norm;      // bf16[hidden]
  Affine router;  // [experts, hidden]
  View normed;    // f32[rows, hidden]
  View ids;       // i32[rows, k]
  View weights;   // f32[rows, k]
  int rows = 0;
  int hidden = 0;
  int k = 0;
  float eps = 1e-6f;
};

// out = W_down(act(W_gate x) * (W_up x)), times sigmoid(scalar_gate x) if that matrix has its row.
struct SharedExpert {
  View x;  // f32[rows, hidden]
  Affine gate, up, down;
  Affine scalar_gate;  // [1, hidden], or no rows
  Activation activation = Activation::kGeluTanh;
  View scratch;  // f32[rows, gate.rows]
  View out;      // f32[rows, hidden]
  int rows = 0;
};

// Which slots hold the experts that one token chose: slots[j] = table[ids[j]], and hit = 1 if none
// of them is -1, else 0. An id outside the table counts as absent.
struct LookUpSlots {
  View ids;    // i32[k]
  View table;  // i16[experts]: the slot of each expert, -1 if it has none
  View slots;  // i32[k]
  View hit;    // i32[1]
  int experts = 0;
  int k = 0;
};

// Where the nine parts of a routed expert lie inside its blob, and their shapes: gate and up are
// [width, hidden], down is [hidden, width].
struct ExpertShape {
  struct Part {
    size_t weight = 0, scales = 0, biases = 0;
    int bits = 4;
    int group = 64;
  };
  Part gate, up, down;
  int hidden = 0;
  int width = 0;
  Activation activation = Activation::kGeluTanh;
};

// One expert of a tile and the (row, rank) pairs that chose it: pairs[first, last).
struct RoutedExpert {
  View blob;
  int first = 0;
  int last = 0;
};

// Lets a tile be encoded before anyone has read which experts the router chose: each expert of the
// tile has one pair, its `first`, and lies in slot slots[first]. Unless hit is 1 the operation does
// nothing.
struct SlotGuard {
  View slab;   // slot n at n * stride
  View slots;  // i32[k]: what LookUpSlots found
  View hit;    // i32[1]
  size_t stride = 0;

  explicit operator bool() const { return static_cast<bool>(slab); }
};

// A tile of at most eight routed experts. A pair p = row * k + rank names one row's choice; y[p] =
// D_e(act(G_e x[row]) * (U_e x[row])).
//   accumulate = false: out[p] = y[p], out is f32[rows, k, hidden]   (decode: the tail sums)
//   accumulate = true:  out[row] += weights[p] * y[p], out is f32[rows, hidden]; tiles and the
//                       experts in them come in ascending expert id  (prefill)
// Both sum a row's experts in ascending expert id, each product rounded before it is added, so the
// two forms give the same bytes. With a guard there is one row, nothing is accumulated, and the
// blobs of the experts are not read: each may be any slot.
struct RoutedExperts {
  static constexpr int kMaxTile = 8;
  View x;        // f32[rows, hidden]
  View pairs;    // i32[rows * k], grouped by expert, ascending within one
  View weights;  // f32[rows, k]
  View scratch;  // f32[tile pairs, width]
  View out;
  ExpertShape shape;
  std::array<RoutedExpert, kMaxTile> experts;
  SlotGuard guard;
  int count = 0;
  int rows = 0;
  int k = 0;
  bool accumulate = false;
};

// out = 0, f32[count]. Starts an accumulation.
struct Zero {
  View out;
  int count = 0;
};

// Layer tail (Gemma 4):
//   both = rms(shared, post_shared) + rms(sum, post_routed)
//   x = (x + rms(both, post_layer)) * layer_scalar
// where sum is routed[r] if parts is 0 (an accumulation), else the sum over ranks j, in ascending
// ids[r, j], of weights[r, j] * routed[r, j].
struct LayerTail {
  View x;                                     // f32[rows, hidden], in place
  View shared;                                // f32[rows, hidden]
  View routed;                                // f32[rows, hidden] or f32[rows, parts, hidden]
  View ids;                                   // i32[rows, parts], read only if parts > 0
  View weights;                               // f32[rows, parts], read only if parts > 0
  View post_shared, post_routed, post_layer;  // bf16[hidden]
  View layer_scalar;                          // bf16[1]
  int rows = 0;
  int hidden = 0;
  int parts = 0;
  float eps = 1e-6f;
};

// x = x + (sum + shared), where sum is that of LayerTail.
struct ResidualTail {
  View x;        // f32[rows, hidden], in place
  View shared;   // f32[rows, hidden]
  View routed;   // f32[rows, hidden] or f32[rows, parts, hidden]
  View ids;      // i32[rows, parts], read only if parts > 0
  View weights;  // f32[rows, parts], read only if parts > 0
  int rows = 0;
  int hidden = 0;
  int parts = 0;
};

// token = argmax of W rms(x, norm), the lowest id among equals. The softcap is monotone and
// therefore left out.
struct HeadArgmax {
  View x;     // f32[cols]
  View norm;  // bf16[cols]
  Affine table;
  View token;  // i32[1]
  float eps = 1e-6f;
};

// z = W rms(x, norm); logits = softcap > 0 ? softcap * tanh(z / softcap) : z.
struct HeadLogits {
  View x;     // f32[cols]
  View norm;  // bf16[cols]
  Affine table;
  View logits;  // f32[table.rows]
  float softcap = 0.0f;
  float eps = 1e-6f;
};

// The `count` largest logits in descending order, lower id first among equals, and
// log_sum = log(sum(exp(logits))) over the whole vocabulary.
struct TopCandidates {
  View logits;   // f32[vocabulary]
  View ids;      // i32[count]
  View values;   // f32[count]
  View log_sum;  // f32[1]
  int vocabulary = 0;
  int count = 0;
};

using Operation = std::variant<EmbedRows, NormProject, QkvEpilogue, Attention, GateHeads,
                               ConvolutionTail, GatedDelta, Project, PostAttentionRouter,
                               ResidualRouter, SharedExpert, LookUpSlots, RoutedExperts, Zero,
                               LayerTail, ResidualTail, HeadArgmax, HeadLogits, TopCandidates>;

}  // namespace mference
