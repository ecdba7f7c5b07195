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

// a = rms(x, norm); q = Wq a; k = Wk a; v = Wv a. Without a view in v_out there is no v.
struct NormQkv {
  View x;     // f32[rows, cols]
  View norm;  // bf16[cols]
  Affine q, k, v;
  View q_out, k_out, v_out;  // f32[rows, matrix rows]
  int rows = 0;
  float eps = 1e-6f;
};

// For each row and head: q = rope(rms(q, q_norm)) in place; key = rope(rms(k, k_norm)) and value =
// rms(v) are written to the cache at position `position + row`. v may be the same view as k (the
// raw projection serves both). rope rotates pairs (i, i + dim/2) for i < rotated: lo' = lo cos -
// hi sin, hi' = lo sin + hi cos; the other dimensions pass unchanged.
struct QkvEpilogue {
  View q;               // f32[rows, heads, dim], in place
  View k, v;            // f32[rows, cache.heads, dim]
  View q_norm, k_norm;  // bf16[dim]
  View rope;            // f32[rows, rotated, 2]: cos, sin
  KvCache cache;
  int rows = 0;
  int heads = 0;
  int rotated = 0;
  int position = 0;
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

// out = W_down(act(W_gate x) * (W_up x)).
struct SharedExpert {
  View x;  // f32[rows, hidden]
  Affine gate, up, down;
  Activation activation = Activation::kGeluTanh;
  View scratch;  // f32[rows, gate.rows]
  View out;      // f32[rows, hidden]
  int rows = 0;
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

// A tile of at most eight routed experts. A pair p = row * k + rank names one row's choice; y[p] =
// D_e(act(G_e x[row]) * (U_e x[row])).
//   accumulate = false: out[p] = y[p], out is f32[rows, k, hidden]   (decode: LayerTail sums)
//   accumulate = true:  out[row] += weights[p] * y[p], out is f32[rows, hidden]; tiles and the
//                       experts in them come in ascending expert id  (prefill)
// Both sum a row's experts in ascending expert id, each product rounded before it is added, so the
// two forms give the same bytes.
struct RoutedExperts {
  static constexpr int kMaxTile = 8;
  View x;        // f32[rows, hidden]
  View pairs;    // i32[rows * k], grouped by expert, ascending within one
  View weights;  // f32[rows, k]
  View scratch;  // f32[tile pairs, width]
  View out;
  ExpertShape shape;
  std::array<RoutedExpert, kMaxTile> experts;
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

using Operation = std::variant<EmbedRows, NormQkv, QkvEpilogue, Attention, Project,
                               PostAttentionRouter, SharedExpert, RoutedExperts, Zero, LayerTail,
                               HeadArgmax, HeadLogits, TopCandidates>;

}  // namespace mference
