#include "model/families/gemma4.h"

#include <cmath>
#include <cstring>
#include <string>

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

// ---- rotary angles ----

// cos and sin of t * theta^(-2i/dim), in double, since float32 angles lose 1e-3 radians at
// position 10^5. Full layers rotate only the first share of the pairs, with the divisor still dim.
class Rope {
 public:
  Rope(Device& device, int dim, int rotated, double theta, int rows) : rotated_(rotated) {
    for (int i = 0; i < rotated; ++i) frequencies_.push_back(std::pow(theta, -2.0 * i / dim));
    const size_t size = sizeof(float) * 2 * static_cast<size_t>(rotated) * rows;
    table_ = device.allocate(size);
  }
  void fill(Pass pass) {
    auto* out = reinterpret_cast<float*>(table_->data());
    for (int row = 0; row < pass.count; ++row) {
      for (const double frequency : frequencies_) {
        const double angle = (pass.position + row) * frequency;
        *out++ = static_cast<float>(std::cos(angle));
        *out++ = static_cast<float>(std::sin(angle));
      }
    }
  }
  View view() const { return {table_.get(), 0, table_->size()}; }
  int rotated() const { return rotated_; }

 private:
  int rotated_;
  std::vector<double> frequencies_;
  std::unique_ptr<Buffer> table_;
};

// ---- forward ----

class Gemma4 final : public Forward {
 public:
  explicit Gemma4(const ForwardInit& init)
      : arch_(init.arch),
        expert_(init.expert),
        kv_(init.kv),
        device_(init.device),
        sliding_rope_(init.device, arch_.head_dim, arch_.head_dim / 2, arch_.rope_theta,
                      init.chunk),
        full_rope_(init.device, arch_.full_head_dim,
                   static_cast<int>(arch_.full_head_dim * arch_.partial_rotary) / 2,
                   arch_.full_rope_theta, init.chunk) {
    const Weights& w = init.weights;
    embedding_ = w.affine("language_model.model.embed_tokens", arch_.vocabulary, arch_.hidden);
    norm_ = w.vector("language_model.model.norm.weight", arch_.hidden);
    for (int i = 0; i < arch_.layers; ++i) layers_.push_back(load_layer(w, arch_, i));

    const size_t rows = init.chunk;
    const size_t hidden = arch_.hidden, top_k = arch_.top_k;
    const size_t heads = std::max(arch_.heads * arch_.head_dim, arch_.heads * arch_.full_head_dim);
    const size_t kv =
        std::max(arch_.kv_heads * arch_.head_dim, arch_.full_kv_heads * arch_.full_head_dim);
    tokens_ = make(rows);
    x_ = make(rows * hidden);
    q_ = make(rows * heads);
    k_ = make(rows * kv);
    v_ = make(rows * kv);
    attended_ = make(rows * heads);
    dense_in_ = make(rows * hidden);
    routed_in_ = make(rows * hidden);
    shared_ = make(rows * hidden);
    // In decode each expert's output has its own row; in prefill each token has one sum.
    routed_ = make(std::max(rows, top_k) * hidden);
    ids_ = make(rows * top_k);
    weights_ = make(rows * top_k);
    pairs_ = make(rows * top_k);
    dense_scratch_ = make(rows * arch_.dense_width);
    expert_scratch_ = make(rows * top_k * arch_.expert_width);
    logits_ = make(arch_.vocabulary);
    token_ = make(1);
  }

  void begin(Stream& stream, std::span<const int32_t> tokens, Pass pass) override {
    std::memcpy(host(tokens_), tokens.data(), tokens.size_bytes());
    sliding_rope_.fill(pass);
    full_rope_.fill(pass);
    EmbedRows embed;
    embed.table = embedding_;
    embed.tokens = tokens_;
    embed.out = x_;
    embed.rows = pass.count;
    embed.scale = static_cast<float>(std::sqrt(static_cast<double>(arch_.hidden)));
    stream.encode(embed);
  }

  void mix(Stream& stream, int index, Pass pass) override {
    const Layer& layer = layers_[index];
    const KvCache& cache = kv_.layer(index);
    const Rope& rope = layer.full ? full_rope_ : sliding_rope_;

    NormQkv qkv;
    qkv.x = x_;
    qkv.norm = layer.input_norm;
    qkv.q = layer.q;
    qkv.k = layer.k;
    qkv.v = layer.v;
    qkv.q_out = q_;
    qkv.k_out = k_;
    if (!layer.full) qkv.v_out = v_;
    qkv.rows = pass.count;
    qkv.eps = kEps;
    stream.encode(qkv);

    QkvEpilogue epilogue;
    epilogue.q = q_;
    epilogue.k = k_;
    // A full layer has no V projection: its values start from the raw keys.
    epilogue.v = layer.full ? k_ : v_;
    epilogue.q_norm = layer.q_norm;
    epilogue.k_norm = layer.k_norm;
    epilogue.rope = rope.view();
    epilogue.cache = cache;
    epilogue.rows = pass.count;
    epilogue.heads = arch_.heads;
    epilogue.rotated = rope.rotated();
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
    shared.activation = Activation::kGeluTanh;
    shared.scratch = dense_scratch_;
    shared.out = shared_;
    shared.rows = pass.count;
    stream.encode(shared);
    if (pass.count > 1) stream.encode(Zero{routed_, pass.count * arch_.hidden});
  }

  void routed(Stream& stream, int /*layer*/, Pass pass, const Tile& tile) override {
    RoutedExperts routed;
    routed.x = routed_in_;
    routed.pairs = pairs_;
    routed.weights = weights_;
    routed.scratch = expert_scratch_;
    routed.out = routed_;
    routed.shape = expert_;
    std::copy(tile.experts.begin(), tile.experts.end(), routed.experts.begin());
    routed.count = static_cast<int>(tile.experts.size());
    routed.rows = pass.count;
    routed.k = arch_.top_k;
    routed.accumulate = tile.accumulate;
    stream.encode(routed);
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
    tail.parts = pass.count > 1 ? 0 : arch_.top_k;
    tail.eps = kEps;
    stream.encode(tail);
  }

  void head(Stream& stream, Pass pass, Head head) override {
    const size_t row = sizeof(float) * static_cast<size_t>(arch_.hidden);
    const View last = x_.at(row * static_cast<size_t>(pass.count - 1), row);
    if (head == Head::kArgmax) {
      stream.encode(HeadArgmax{last, norm_, embedding_, token_, kEps});
    } else if (head == Head::kLogits) {
      stream.encode(HeadLogits{last, norm_, embedding_, logits_, arch_.softcap, kEps});
    }
  }

  std::span<const int32_t> ids(Pass pass) const override {
    return {reinterpret_cast<const int32_t*>(host(ids_)),
            static_cast<size_t>(pass.count) * arch_.top_k};
  }
  std::span<int32_t> pairs(Pass pass) override {
    return {reinterpret_cast<int32_t*>(host(pairs_)),
            static_cast<size_t>(pass.count) * arch_.top_k};
  }
  int32_t token() const override { return *reinterpret_cast<const int32_t*>(host(token_)); }
  std::span<const float> logits() const override {
    return {reinterpret_cast<const float*>(host(logits_)), static_cast<size_t>(arch_.vocabulary)};
  }

 private:
  // All activations are 4-byte elements: float32, or int32 for tokens, ids and pairs.
  View make(size_t count) {
    buffers_.push_back(device_.allocate(count * 4));
    return {buffers_.back().get(), 0, count * 4};
  }
  static std::byte* host(const View& view) { return view.buffer->data() + view.offset; }

  const Arch& arch_;
  const ExpertShape& expert_;
  const KvState& kv_;
  Device& device_;
  Affine embedding_;
  View norm_;
  std::vector<Layer> layers_;
  Rope sliding_rope_, full_rope_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  View tokens_, x_, q_, k_, v_, attended_, dense_in_, routed_in_, shared_, routed_;
  View ids_, weights_, pairs_, dense_scratch_, expert_scratch_, logits_, token_;
};

}  // namespace

// ---- family ----

std::vector<KvShape> kv_shapes(const Arch& arch) {
  std::vector<KvShape> shapes;
  for (int i = 0; i < arch.layers; ++i) {
    shapes.push_back(arch.full(i) ? KvShape{arch.full_kv_heads, arch.full_head_dim, 0}
                                  : KvShape{arch.kv_heads, arch.head_dim, arch.window});
  }
  return shapes;
}

std::unique_ptr<Forward> make(const ForwardInit& init) {
  return std::make_unique<Gemma4>(init);
}

}  // namespace mference::gemma4
