// The architecture values of a manifest, by the names the families use.
#pragma once

#include <string>
#include <vector>

namespace mference {

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
  std::vector<int> mask;  // by layer: 0 sliding, 1 full attention

  bool full(int layer) const { return mask[layer] == 1; }
};

}  // namespace mference
