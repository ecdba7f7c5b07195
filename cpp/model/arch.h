// The architecture values of a manifest, by the names the families use.
#pragma once

#include <string>
#include <vector>

namespace mference {

// How a layer mixes tokens, as fullAttentionLayerMask numbers it.
enum class LayerKind { kSliding = 0, kFull = 1, kLinear = 2 };

struct Arch {
  std::string family;
  int layers = 0;
  int hidden = 0;
  int dense_width = 0;
  int expert_width = 0;
  int experts = 0;
  int top_k = 0;
  int heads = 0;
  int kv_heads = 0;
  int full_kv_heads = 0;
  int head_dim = 0;
  int full_head_dim = 0;
  int vocabulary = 0;
  int window = 0;
  float softcap = 0.0f;
  double rope_theta = 0.0;
  double full_rope_theta = 0.0;
  double partial_rotary = 0.0;
  double attention_scale = 1.0;
  int linear_key_heads = 0;
  int linear_value_heads = 0;
  int linear_key_dim = 0;
  int linear_value_dim = 0;
  int linear_taps = 0;  // of the convolution
  std::vector<LayerKind> mask;

  bool full(int layer) const { return mask[layer] == LayerKind::kFull; }
};

}  // namespace mference
