#include "model/families/gemma4.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "model/families/common.h"
#include "model/families/rope.h"

namespace mference::gemma4 {

namespace {

constexpr float kEps = 1e-6f;

// ---- weights ----

struct Layer {
  bool full = false;
  View input_norm, q_norm, k_norm;
  Affine q, k, v, o;
  View post_attention, pre_dense, pre_routed;
  View router_scale, expert_scale;
  Affine router;
  Affine gate, up, down;
  View post_shared, post_routed, post_layer, layer_scalar;
};

Layer load_layer(const Weights& w, const Arch& a, int index) {
  const std::string p = "language_model.model.layers." + std::to_string(index) + ".";
  Layer layer;
  layer.full = a.full(index);
  const int dim = layer.full ? a.full_head_dim : a.head_dim;
  const int kv = (layer.full ? a.full_kv_heads : a.kv_heads) * dim;
  layer.input_norm = w.vector(p + "input_layernorm.weight", a.hidden);
  layer.q_norm = w.vector(p + "self_attn.q_norm.weight", dim);
  layer.k_norm = w.vector(p + "self_attn.k_norm.weight", dim);
  layer.q = w.affine(p + "self_attn.q_proj", a.heads * dim, a.hidden);
  layer.k = w.affine(p + "self_attn.k_proj", kv, a.hidden);
  if (!layer.full) layer.v = w.affine(p + "self_attn.v_proj", kv, a.hidden);
  layer.o = w.affine(p + "self_attn.o_proj", a.hidden, a.heads * dim);
  layer.post_attention = w.vector(p + "post_attention_layernorm.weight", a.hidden);
  layer.pre_dense = w.vector(p + "pre_feedforward_layernorm.weight", a.hidden);
  layer.pre_routed = w.vector(p + "pre_feedforward_layernorm_2.weight", a.hidden);
  layer.router_scale = w.vector(p + "router.scale", a.hidden);
  layer.expert_scale = w.vector(p + "router.per_expert_scale", a.experts);
  layer.router = w.affine(p + "router.proj", a.experts, a.hidden);
  layer.gate = w.affine(p + "mlp.gate_proj", a.dense_width, a.hidden);
  layer.up = w.affine(p + "mlp.up_proj", a.dense_width, a.hidden);
  layer.down = w.affine(p + "mlp.down_proj", a.hidden, a.dense_width);
  layer.post_shared = w.vector(p + "post_feedforward_layernorm_1.weight", a.hidden);
  layer.post_routed = w.vector(p + "post_feedforward_layernorm_2.weight", a.hidden);
  layer.post_layer = w.vector(p + "post_feedforward_layernorm.weight", a.hidden);
  layer.layer_scalar = w.vector(p + "layer_scalar", 1);
  return layer;
}

// ---- forward ----

class Gemma4 final : public CommonForward {
 public:
  explicit Gemma4(const ForwardInit& init)
      : CommonForward(init),
        kv_(init.kv),
        sliding_rope_(init.device, arch_.head_dim, arch_.head_dim / 2, arch_.rope_theta,
                      init.chunk),
        // Full layers rotate only the first share of the pairs; the divisor is still the head.
        full_rope_(init.device, arch_.full_head_dim,
                   static_cast<int>(arch_.full_head_dim * arch_.partial_rotary) / 2,
                   arch_.full_rope_theta, init.chunk) {
    const Weights& w = init.weights;
    embedding_ = w.affine("language_model.model.embed_tokens", arch_.vocabulary, arch_.hidden);
    output_ = {w.vector("language_model.model.norm.weight", arch_.hidden), embedding_,
               arch_.softcap, kEps};
    for (int i = 0; i < arch_.layers; ++i) layers_.push_back(load_layer(w, arch_, i));

    const size_t rows = init.chunk, hidden = arch_.hidden;
    const size_t heads = std::max(arch_.heads * arch_.head_dim, arch_.heads * arch_.full_head_dim);
    const size_t kv =
        std::max(arch_.kv_heads * arch_.head_dim, arch_.full_kv_heads * arch_.full_head_dim);
    q_ = make(rows * heads);
    k_ = make(rows * kv);
    v_ = make(rows * kv);
    attended_ = make(rows * heads);
    dense_in_ = make(rows * hidden);
    shared_ = make(rows * hidden);
    dense_scratch_ = make(rows * arch_.dense_width);
  }

  void begin(Stream& stream, std::span<const int32_t> tokens, Pass pass) override {
    sliding_rope_.fill(pass);
    full_rope_.fill(pass);
    embed(stream, tokens, pass, embedding_,
          static_cast<float>(std::sqrt(static_cast<double>(arch_.hidden))));
  }

  void mix(Stream& stream, int index, Pass pass) override {
    const Layer& layer = layers_[index];
    const KvCache& cache = kv_.layer(index);
    const Rope& rope = layer.full ? full_rope_ : sliding_rope_;

    NormProject qkv;
    qkv.x = x_;
    qkv.norm = layer.input_norm;
    qkv.parts = {{{layer.q, q_}, {layer.k, k_}, {layer.v, v_}}};
    qkv.count = layer.full ? 2 : 3;
    qkv.rows = pass.count;
    qkv.eps = kEps;
    stream.encode(qkv);

    QkvEpilogue epilogue;
    epilogue.q = q_;
    epilogue.q_out = q_;
    epilogue.k = k_;
    // A full layer has no V projection: its values start from the raw keys.
    epilogue.v = layer.full ? k_ : v_;
    epilogue.q_norm = layer.q_norm;
    epilogue.k_norm = layer.k_norm;
    epilogue.rope = rope.view();
    epilogue.cache = cache;
    epilogue.rows = pass.count;
    epilogue.heads = arch_.heads;
    epilogue.q_width = cache.dim;
    epilogue.rotated = rope.rotated();
    epilogue.distance = cache.dim / 2;
    epilogue.position = pass.position;
    epilogue.eps = kEps;
    stream.encode(epilogue);

    Attention attention;
    attention.q = q_;
    attention.out = attended_;
    attention.cache = cache;
    attention.rows = pass.count;
    attention.heads = arch_.heads;
    attention.position = pass.position;
    attention.window = layer.full ? 0 : arch_.window;
    attention.scale = 1.0f;
    stream.encode(attention);

    Project output;
    output.x = attended_;
    output.weight = layer.o;
    // The shared branch runs later: until then its output row holds the attention's.
    output.out = shared_;
    output.rows = pass.count;
    stream.encode(output);

    PostAttentionRouter router;
    router.x = x_;
    router.attention = shared_;
    router.post_attention = layer.post_attention;
    router.pre_dense = layer.pre_dense;
    router.pre_routed = layer.pre_routed;
    router.router_scale = layer.router_scale;
    router.expert_scale = layer.expert_scale;
    router.router = layer.router;
    router.dense_in = dense_in_;
    router.routed_in = routed_in_;
    router.ids = ids_;
    router.weights = weights_;
    router.rows = pass.count;
    router.hidden = arch_.hidden;
    router.k = arch_.top_k;
    router.eps = kEps;
    stream.encode(router);
  }

  void shared(Stream& stream, int index, Pass pass) override {
    const Layer& layer = layers_[index];
    SharedExpert shared;
    shared.x = dense_in_;
    shared.gate = layer.gate;
    shared.up = layer.up;
    shared.down = layer.down;
    shared.activation = expert_.activation;
    shared.scratch = dense_scratch_;
    shared.out = shared_;
    shared.rows = pass.count;
    stream.encode(shared);
    start_routed(stream, pass);
  }

  void tail(Stream& stream, int index, Pass pass) override {
    const Layer& layer = layers_[index];
    LayerTail tail;
    tail.x = x_;
    tail.shared = shared_;
    tail.routed = routed_;
    tail.ids = ids_;
    tail.weights = weights_;
    tail.post_shared = layer.post_shared;
    tail.post_routed = layer.post_routed;
    tail.post_layer = layer.post_layer;
    tail.layer_scalar = layer.layer_scalar;
    tail.rows = pass.count;
    tail.hidden = arch_.hidden;
    tail.parts = parts(pass);
    tail.eps = kEps;
    stream.encode(tail);
  }

 private:
  const KvState& kv_;
  Affine embedding_;
  std::vector<Layer> layers_;
  Rope sliding_rope_, full_rope_;
  View q_, k_, v_, attended_, dense_in_, shared_, dense_scratch_;
};

// ---- family ----

std::vector<LayerState> states(const Arch& arch) {
  std::vector<LayerState> layers;
  for (int i = 0; i < arch.layers; ++i) {
    const KvShape kv = arch.full(i) ? KvShape{arch.full_kv_heads, arch.full_head_dim, 0}
                                    : KvShape{arch.kv_heads, arch.head_dim, arch.window};
    layers.push_back({kv, {}});
  }
  return layers;
}

std::unique_ptr<Forward> make(const ForwardInit& init) {
  return std::make_unique<Gemma4>(init);
}

}  // namespace

const Family kFamily{"gemma4", {LayerKind::kSliding, LayerKind::kFull}, states, make};

}  // namespace mference::gemma4
