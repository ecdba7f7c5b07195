#include "model/families/qwen36.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "model/families/common.h"
#include "model/families/rope.h"

namespace mference::qwen36 {

namespace {

constexpr float kEps = 1e-6f;

int key_width(const Arch& a) {
  return a.linear_key_heads * a.linear_key_dim;
}
int value_width(const Arch& a) {
  return a.linear_value_heads * a.linear_value_dim;
}
// Channels of a linear layer's convolution: queries, keys and values.
int channels(const Arch& a) {
  return 2 * key_width(a) + value_width(a);
}

// ---- weights ----

// A layer has either the parts of full attention or those of a linear mixer.
struct Layer {
  bool full = false;
  View input_norm, post_attention_norm;
  Affine q, k, v, o;
  View q_norm, k_norm;
  Affine qkv, z, a, b, out;
  View convolution, norm;
  View rate, dt_bias;  // f32, in memory of our own
  Affine router, scalar_gate;
  Affine gate, up, down;
};

void load_attention(const Weights& w, const Arch& a, const std::string& p, Layer& layer) {
  const int heads = a.heads * a.head_dim, kv = a.full_kv_heads * a.head_dim;
  // For each head its query, then its gate.
  layer.q = w.affine(p + "self_attn.q_proj", 2 * heads, a.hidden);
  layer.k = w.affine(p + "self_attn.k_proj", kv, a.hidden);
  layer.v = w.affine(p + "self_attn.v_proj", kv, a.hidden);
  layer.o = w.affine(p + "self_attn.o_proj", a.hidden, heads);
  layer.q_norm = w.vector(p + "self_attn.q_norm.weight", a.head_dim);
  layer.k_norm = w.vector(p + "self_attn.k_norm.weight", a.head_dim);
}

void load_linear(const Weights& w, const Arch& a, const std::string& p, Layer& layer) {
  const int heads = a.linear_value_heads;
  layer.qkv = w.affine(p + "linear_attn.in_proj_qkv", channels(a), a.hidden);
  layer.z = w.affine(p + "linear_attn.in_proj_z", value_width(a), a.hidden);
  layer.a = w.affine(p + "linear_attn.in_proj_a", heads, a.hidden);
  layer.b = w.affine(p + "linear_attn.in_proj_b", heads, a.hidden);
  layer.out = w.affine(p + "linear_attn.out_proj", a.hidden, value_width(a));
  layer.convolution = w.vector(p + "linear_attn.conv1d.weight", channels(a) * a.linear_taps);
  layer.norm = w.vector(p + "linear_attn.norm.weight", a.linear_value_dim);
}

Layer load_layer(const Weights& w, const Arch& a, int index) {
  const std::string p = "language_model.model.layers." + std::to_string(index) + ".";
  Layer layer;
  layer.full = a.full(index);
  layer.input_norm = w.vector(p + "input_layernorm.weight", a.hidden);
  layer.post_attention_norm = w.vector(p + "post_attention_layernorm.weight", a.hidden);
  layer.full ? load_attention(w, a, p, layer) : load_linear(w, a, p, layer);
  layer.router = w.affine(p + "mlp.gate", a.experts, a.hidden);
  layer.scalar_gate = w.affine(p + "mlp.shared_expert_gate", 1, a.hidden);
  layer.gate = w.affine(p + "mlp.shared_expert.gate_proj", a.dense_width, a.hidden);
  layer.up = w.affine(p + "mlp.shared_expert.up_proj", a.dense_width, a.hidden);
  layer.down = w.affine(p + "mlp.shared_expert.down_proj", a.hidden, a.dense_width);
  return layer;
}

// ---- forward ----

class Qwen36 final : public CommonForward {
 public:
  explicit Qwen36(const ForwardInit& init)
      : CommonForward(init),
        kv_(init.kv),
        recurrent_(init.recurrent),
        rotary_dim_(static_cast<int>(arch_.head_dim * arch_.partial_rotary)),
        rope_(init.device, rotary_dim_, rotary_dim_ / 2, arch_.full_rope_theta, init.chunk) {
    const Weights& w = init.weights;
    embedding_ = w.affine("language_model.model.embed_tokens", arch_.vocabulary, arch_.hidden);
    output_ = {w.vector("language_model.model.norm.weight", arch_.hidden),
               w.affine("language_model.lm_head", arch_.vocabulary, arch_.hidden), 0.0f, kEps};
    for (int i = 0; i < arch_.layers; ++i) {
      layers_.push_back(load_layer(w, arch_, i));
      if (!layers_.back().full) load_decay(w, i);
    }

    const size_t rows = init.chunk, hidden = arch_.hidden;
    const size_t heads = arch_.heads * arch_.head_dim;
    const size_t values = std::max<size_t>(heads, value_width(arch_));
    projected_ = make(rows * std::max<size_t>(2 * heads, channels(arch_)));
    mixed_ = make(rows * channels(arch_));
    second_ = make(rows * values);
    attended_ = make(rows * values);
    k_ = make(rows * arch_.full_kv_heads * arch_.head_dim);
    v_ = make(rows * arch_.full_kv_heads * arch_.head_dim);
    alpha_ = make(rows * arch_.linear_value_heads);
    beta_ = make(rows * arch_.linear_value_heads);
    shared_ = make(rows * hidden);
    shared_scratch_ = make(rows * arch_.dense_width);
  }

  void begin(Stream& stream, std::span<const int32_t> tokens, Pass pass) override {
    rope_.fill(pass);
    embed(stream, tokens, pass, embedding_, 1.0f);
  }

  void mix(Stream& stream, int index, Pass pass) override {
    const Layer& layer = layers_[index];
    if (layer.full) {
      attend(stream, layer, kv_.layer(index), pass);
    } else {
      recur(stream, layer, index, pass);
    }

    Project output;
    output.x = attended_;
    output.weight = layer.full ? layer.o : layer.out;
    // The shared branch runs later: until then its output row holds the mixer's.
    output.out = shared_;
    output.rows = pass.count;
    stream.encode(output);

    ResidualRouter router;
    router.x = x_;
    router.update = shared_;
    router.norm = layer.post_attention_norm;
    router.router = layer.router;
    router.normed = routed_in_;
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
    shared.x = routed_in_;
    shared.gate = layer.gate;
    shared.up = layer.up;
    shared.down = layer.down;
    shared.scalar_gate = layer.scalar_gate;
    shared.activation = expert_.activation;
    shared.scratch = shared_scratch_;
    shared.out = shared_;
    shared.rows = pass.count;
    stream.encode(shared);
    start_routed(stream, pass);
  }

  void tail(Stream& stream, int /*index*/, Pass pass) override {
    ResidualTail tail;
    tail.x = x_;
    tail.shared = shared_;
    tail.routed = routed_;
    tail.ids = ids_;
    tail.weights = weights_;
    tail.rows = pass.count;
    tail.hidden = arch_.hidden;
    tail.parts = parts(pass);
    stream.encode(tail);
  }

 private:
  // The decay of each head is stored as its logarithm, in BF16 or float32.
  void load_decay(const Weights& w, int index) {
    const std::string p = "language_model.model.layers." + std::to_string(index) + ".linear_attn.";
    const int heads = arch_.linear_value_heads;
    const auto place = [&](std::vector<float> values) {
      const View view = make(values.size());
      std::memcpy(view.buffer->data(), values.data(), view.size);
      return view;
    };
    std::vector<float> rate = w.numbers(p + "A_log", heads);
    for (float& value : rate) value = std::exp(value);
    layers_[index].rate = place(std::move(rate));
    layers_[index].dt_bias = place(w.numbers(p + "dt_bias", heads));
  }

  void attend(Stream& stream, const Layer& layer, const KvCache& cache, Pass pass) {
    NormProject qkv;
    qkv.x = x_;
    qkv.norm = layer.input_norm;
    qkv.parts = {{{layer.q, projected_}, {layer.k, k_}, {layer.v, v_}}};
    qkv.count = 3;
    qkv.rows = pass.count;
    qkv.eps = kEps;
    stream.encode(qkv);

    QkvEpilogue epilogue;
    epilogue.q = projected_;
    epilogue.q_out = second_;
    epilogue.k = k_;
    epilogue.v = v_;
    epilogue.q_norm = layer.q_norm;
    epilogue.k_norm = layer.k_norm;
    epilogue.rope = rope_.view();
    epilogue.cache = cache;
    epilogue.rows = pass.count;
    epilogue.heads = arch_.heads;
    epilogue.q_width = 2 * arch_.head_dim;
    epilogue.rotated = rope_.rotated();
    epilogue.distance = rotary_dim_ / 2;
    epilogue.position = pass.position;
    epilogue.norm_values = false;
    epilogue.eps = kEps;
    stream.encode(epilogue);

    Attention attention;
    attention.q = second_;
    attention.out = attended_;
    attention.cache = cache;
    attention.rows = pass.count;
    attention.heads = arch_.heads;
    attention.position = pass.position;
    attention.scale = static_cast<float>(arch_.attention_scale);
    stream.encode(attention);

    GateHeads gate;
    gate.x = attended_;
    gate.gate = projected_;
    gate.rows = pass.count;
    gate.heads = arch_.heads;
    gate.dim = arch_.head_dim;
    gate.width = 2 * arch_.head_dim;
    stream.encode(gate);
  }

  void recur(Stream& stream, const Layer& layer, int index, Pass pass) {
    NormProject project;
    project.x = x_;
    project.norm = layer.input_norm;
    project.parts = {
        {{layer.qkv, projected_}, {layer.z, second_}, {layer.a, alpha_}, {layer.b, beta_}}};
    project.count = 4;
    project.rows = pass.count;
    project.eps = kEps;
    stream.encode(project);

    ConvolutionTail convolution;
    convolution.x = projected_;
    convolution.weight = layer.convolution;
    convolution.tail = recurrent_.tail(index);
    convolution.out = mixed_;
    convolution.type = recurrent_.type();
    convolution.rows = pass.count;
    convolution.channels = channels(arch_);
    convolution.taps = arch_.linear_taps;
    stream.encode(convolution);

    GatedDelta delta;
    delta.mixed = mixed_;
    delta.alpha = alpha_;
    delta.beta = beta_;
    delta.rate = layer.rate;
    delta.dt_bias = layer.dt_bias;
    delta.z = second_;
    delta.norm = layer.norm;
    delta.state = recurrent_.delta(index);
    delta.out = attended_;
    delta.rows = pass.count;
    delta.key_heads = arch_.linear_key_heads;
    delta.value_heads = arch_.linear_value_heads;
    delta.key_dim = arch_.linear_key_dim;
    delta.value_dim = arch_.linear_value_dim;
    delta.eps = kEps;
    stream.encode(delta);
  }

  const KvState& kv_;
  const RecurrentState& recurrent_;
  Affine embedding_;
  std::vector<Layer> layers_;
  int rotary_dim_;
  Rope rope_;
  // The two kinds of mixers share their memory: what the first projection gives (queries with gates,
  // or the channels of the convolution) and a second part of it (queries, or z).
  View projected_, second_, mixed_, attended_;
  View k_, v_, alpha_, beta_, shared_, shared_scratch_;
};

// ---- family ----

std::vector<LayerState> states(const Arch& arch) {
  const RecurrentShape recurrent{
      static_cast<size_t>(value_width(arch)) * arch.linear_key_dim,
      static_cast<size_t>(arch.linear_taps - 1) * channels(arch),
  };
  std::vector<LayerState> layers;
  for (int i = 0; i < arch.layers; ++i) {
    if (arch.full(i)) {
      layers.push_back({{arch.full_kv_heads, arch.head_dim, 0}, {}});
    } else {
      layers.push_back({{}, recurrent});
    }
  }
  return layers;
}

std::unique_ptr<Forward> make(const ForwardInit& init) {
  return std::make_unique<Qwen36>(init);
}

}  // namespace

const Family kFamily{"qwen36", {LayerKind::kFull, LayerKind::kLinear}, states, make};

}  // namespace mference::qwen36
