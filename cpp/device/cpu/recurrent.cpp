// Mixers that carry a state from token to token: the convolution and the gated delta rule.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/numeric.h"
#include "device/check.h"
#include "device/cpu/execute.h"
#include "device/cpu/lanes.h"
#include "device/operands.h"

namespace mference::cpu {

namespace {

constexpr int kChannels = 512;  // of a convolution in one task

// A block of channels: the rows before the pass, then its own as later tokens see them.
class Convolve {
 public:
  Convolve(const ConvolutionTail& op, const LaneKernels& lanes)
      : op_(op), lanes_(lanes), half_(op.type == KvType::kFloat16) {
    const size_t channels = op.channels, count = size_t(op.rows) * channels;
    x_ = floats(op.x, count, "ConvolutionTail.x");
    weight_ = halves(op.weight, channels * op.taps, "ConvolutionTail.weight");
    out_ = floats(op.out, count, "ConvolutionTail.out");
    if (half_) {
      half_tail_ = halves(op.tail, channels * (op.taps - 1), "ConvolutionTail.tail");
    } else {
      tail_ = floats(op.tail, channels * (op.taps - 1), "ConvolutionTail.tail");
    }
  }

  void run(int first) const {
    const int n = std::min(kChannels, op_.channels - first), before = op_.taps - 1;
    float weights[kMaxTaps][kChannels], seen[kMaxTaps][kChannels];
    for (int c = 0; c < n; ++c) {
      for (int j = 0; j < op_.taps; ++j) {
        weights[j][c] = bf16_to_float(weight_[size_t(first + c) * op_.taps + j]);
      }
    }
    for (int j = 0; j < before; ++j) recall(j, first, n, seen[j]);
    // seen[(t + j) % before] is the row `before - j` before the token t.
    std::array<const float*, kMaxTaps> rows{}, factors{};
    for (int j = 0; j < op_.taps; ++j) factors[j] = weights[j];
    for (int t = 0; t < op_.rows; ++t) {
      const float* own = x_ + size_t(t) * op_.channels + first;
      for (int j = 0; j < before; ++j) rows[j] = seen[(t + j) % before];
      rows[before] = own;
      lanes_.convolve(rows.data(), factors.data(), op_.taps, n,
                      out_ + size_t(t) * op_.channels + first);
      round(own, n, seen[t % before]);
    }
    for (int j = 0; j < before; ++j) keep(seen[(op_.rows + j) % before], j, first, n);
  }

 private:
  size_t place(int row, int first) const { return size_t(row) * op_.channels + first; }

  void recall(int row, int first, int n, float* out) const {
    for (int c = 0; c < n; ++c) {
      out[c] =
          half_ ? fp16_to_float(half_tail_[place(row, first) + c]) : tail_[place(row, first) + c];
    }
  }

  // The values that the tail would give back.
  void round(const float* x, int n, float* out) const {
    if (!half_) {
      std::copy_n(x, n, out);
      return;
    }
    uint16_t narrow[kChannels];
    lanes_.narrow(x, n, narrow);
    for (int c = 0; c < n; ++c) out[c] = fp16_to_float(narrow[c]);
  }

  void keep(const float* x, int row, int first, int n) const {
    if (half_) {
      lanes_.narrow(x, n, half_tail_ + place(row, first));
    } else {
      std::copy_n(x, n, tail_ + place(row, first));
    }
  }

  const ConvolutionTail& op_;
  const LaneKernels& lanes_;
  bool half_;
  const float* x_ = nullptr;
  const uint16_t* weight_ = nullptr;
  uint16_t* half_tail_ = nullptr;
  float* tail_ = nullptr;
  float* out_ = nullptr;
};

float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

class Delta {
 public:
  Delta(const GatedDelta& op, Context& context)
      : op_(op), context_(context), lanes_(lane_kernels(context.options.isa)) {
    const size_t rows = op.rows, heads = op.value_heads, values = heads * op.value_dim;
    width_ = 2 * size_t(op.key_heads) * op.key_dim + values;
    mixed_ = floats(op.mixed, rows * width_, "GatedDelta.mixed");
    alpha_ = floats(op.alpha, rows * heads, "GatedDelta.alpha");
    beta_ = floats(op.beta, rows * heads, "GatedDelta.beta");
    rate_ = floats(op.rate, heads, "GatedDelta.rate");
    dt_bias_ = floats(op.dt_bias, heads, "GatedDelta.dt_bias");
    z_ = floats(op.z, rows * values, "GatedDelta.z");
    norm_ = halves(op.norm, op.value_dim, "GatedDelta.norm");
    state_ = floats(op.state, values * op.key_dim, "GatedDelta.state");
    out_ = floats(op.out, rows * values, "GatedDelta.out");
  }

  void run() {
    kq_ = reinterpret_cast<float*>(
        context_.partials.reserve(size_t(op_.rows) * op_.key_heads * sizeof(float)));
    context_.pool.run(op_.rows, width_ * 16, [&](int row) { prepare(row); });
    const size_t state_bytes = size_t(op_.value_dim) * op_.key_dim * sizeof(float);
    context_.pool.run(op_.value_heads, state_bytes * op_.rows, [&](int head) { advance(head); });
  }

 private:
  void normalize(float* x, float scale) const {
    const float inverse = scale / std::sqrt(lanes_.dot(x, x, op_.key_dim) + op_.eps);
    for (int i = 0; i < op_.key_dim; ++i) x[i] *= inverse;
  }

  // Normalizes the row's queries and keys, and turns alpha and beta into decay and rate of change.
  void prepare(int row) const {
    float* q = mixed_ + row * width_;
    float* k = q + size_t(op_.key_heads) * op_.key_dim;
    const float scale = 1.0f / std::sqrt(static_cast<float>(op_.key_dim));
    for (int h = 0; h < op_.key_heads; ++h, q += op_.key_dim, k += op_.key_dim) {
      normalize(q, scale);
      normalize(k, 1.0f);
      kq_[size_t(row) * op_.key_heads + h] = lanes_.dot(k, q, op_.key_dim);
    }
    float* alpha = alpha_ + size_t(row) * op_.value_heads;
    float* beta = beta_ + size_t(row) * op_.value_heads;
    for (int h = 0; h < op_.value_heads; ++h) {
      alpha[h] = std::exp(-rate_[h] * softplus(alpha[h] + dt_bias_[h]));
      beta[h] = sigmoid(beta[h]);
    }
  }

  // All rows through one head, whose state stays in the cache of one core.
  void advance(int head) const {
    const int key_head = head / (op_.value_heads / op_.key_heads);
    const size_t keys = size_t(op_.key_heads) * op_.key_dim;
    float* state = state_ + size_t(head) * op_.value_dim * op_.key_dim;
    std::vector<float> y(op_.value_dim);
    for (int row = 0; row < op_.rows; ++row) {
      const float* mixed = mixed_ + row * width_;
      const size_t place = size_t(row) * op_.value_heads + head;
      DeltaStep step;
      step.q = mixed + size_t(key_head) * op_.key_dim;
      step.k = step.q + keys;
      step.v = mixed + 2 * keys + size_t(head) * op_.value_dim;
      step.kq = kq_[size_t(row) * op_.key_heads + key_head];
      step.decay = alpha_[place];
      step.beta = beta_[place];
      step.key_dim = op_.key_dim;
      lanes_.delta(step, state, op_.value_dim, y.data());
      lanes_.norm(y.data(), norm_, op_.value_dim, op_.eps, y.data());
      float* out = out_ + place * op_.value_dim;
      std::copy_n(z_ + place * op_.value_dim, op_.value_dim, out);
      lanes_.gate(Activation::kSilu, out, y.data(), op_.value_dim);
    }
  }

  const GatedDelta& op_;
  Context& context_;
  const LaneKernels& lanes_;
  size_t width_ = 0;
  float* mixed_ = nullptr;
  float* alpha_ = nullptr;
  float* beta_ = nullptr;
  const float* rate_ = nullptr;
  const float* dt_bias_ = nullptr;
  const float* z_ = nullptr;
  const uint16_t* norm_ = nullptr;
  float* state_ = nullptr;
  float* out_ = nullptr;
  float* kq_ = nullptr;
};

}  // namespace

void execute(const ConvolutionTail& op, Context& context) {
  const Convolve convolve(op, lane_kernels(context.options.isa));
  const int tasks = (op.channels + kChannels - 1) / kChannels;
  const size_t bytes = size_t(std::min(op.channels, kChannels)) * op.taps * (4 + 16 * op.rows);
  context.pool.run(tasks, bytes, [&](int task) { convolve.run(task * kChannels); });
}

void execute(const GatedDelta& op, Context& context) {
  Delta(op, context).run();
}

}  // namespace mference::cpu
