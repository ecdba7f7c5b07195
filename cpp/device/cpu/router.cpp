#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/numeric.h"
#include "device/cpu/affine.h"
#include "device/cpu/execute.h"

namespace mference::cpu {

namespace {

// The k largest logits, descending, lower id first among equals; their softmax times `scale`, if
// there is one. False if a logit is not finite.
bool choose_one(const float* logits, int experts, int k, const uint16_t* scale, int32_t* ids,
                float* weights) {
  if (!std::all_of(logits, logits + experts, [](float z) { return std::isfinite(z); }))
    return false;
  std::vector<int32_t> order(experts);
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  });
  float total = 0.0f;
  for (int j = 0; j < k; ++j) {
    ids[j] = order[j];
    weights[j] = std::exp(logits[order[j]] - logits[order[0]]);
    total += weights[j];
  }
  for (int j = 0; j < k; ++j) {
    weights[j] /= total;
    if (scale) weights[j] *= bf16_to_float(scale[ids[j]]);
  }
  return true;
}

// Multiplies and chooses for every row of `in`. `logits` is scratch, [rows, experts].
struct Choice {
  const char* operation;
  Matrix router;
  const float* in;
  float* logits;
  const uint16_t* scale;  // may be null
  int k;
  int32_t* ids;
  float* weights;
};

void choose(Context& context, int rows, const Choice& c) {
  const int experts = c.router.rows, hidden = c.router.cols;
  const Inputs inputs = prepare(context, context.activations, c.router, rows,
                                [&](int r) { return c.in + size_t(r) * hidden; });
  const Product product{c.router, c.logits, size_t(experts)};
  multiply_all(context, &product, 1, inputs);
  std::atomic<bool> finite{true};
  context.pool.run(rows, size_t(experts) * 64, [&](int r) {
    if (!choose_one(c.logits + size_t(r) * experts, experts, c.k, c.scale, c.ids + size_t(r) * c.k,
                    c.weights + size_t(r) * c.k)) {
      finite = false;
    }
  });
  if (!finite) {
    throw DeviceError("router logits are not finite in " + std::string(c.operation) +
                      "; the weights or the input are corrupt");
  }
}

}  // namespace

void execute(const PostAttentionRouter& op, Context& context) {
  const Matrix router = matrix(op.router, "PostAttentionRouter.router");
  const int hidden = op.hidden, experts = router.rows, k = op.k;
  const size_t rows = op.rows;
  float* x = floats(op.x, rows * hidden, "PostAttentionRouter.x");
  const float* attention = floats(op.attention, rows * hidden, "PostAttentionRouter.attention");
  const uint16_t* post_attention =
      halves(op.post_attention, hidden, "PostAttentionRouter.post_attention");
  const uint16_t* pre_dense = halves(op.pre_dense, hidden, "PostAttentionRouter.pre_dense");
  const uint16_t* pre_routed = halves(op.pre_routed, hidden, "PostAttentionRouter.pre_routed");
  const uint16_t* router_scale =
      halves(op.router_scale, hidden, "PostAttentionRouter.router_scale");
  const uint16_t* expert_scale =
      halves(op.expert_scale, experts, "PostAttentionRouter.expert_scale");
  float* dense_in = floats(op.dense_in, rows * hidden, "PostAttentionRouter.dense_in");
  float* routed_in = floats(op.routed_in, rows * hidden, "PostAttentionRouter.routed_in");
  int32_t* ids = integers(op.ids, rows * k, "PostAttentionRouter.ids");
  float* weights = floats(op.weights, rows * k, "PostAttentionRouter.weights");

  const LaneKernels& lanes = lane_kernels(context.options.isa);
  float* router_in = reinterpret_cast<float*>(
      context.partials.reserve(rows * (size_t(hidden) + experts) * sizeof(float)));
  float* logits = router_in + rows * hidden;
  const float root = 1.0f / std::sqrt(static_cast<float>(hidden));
  context.pool.run(op.rows, size_t(hidden) * 40, [&](int r) {
    const size_t at = size_t(r) * hidden;
    float* own = router_in + at;
    lanes.norm(attention + at, post_attention, hidden, op.eps, own);
    for (int i = 0; i < hidden; ++i) x[at + i] += own[i];
    lanes.norm(x + at, pre_dense, hidden, op.eps, dense_in + at);
    lanes.norm(x + at, pre_routed, hidden, op.eps, routed_in + at);
    lanes.norm(x + at, router_scale, hidden, op.eps, own);
    for (int i = 0; i < hidden; ++i) own[i] *= root;
  });
  choose(context, op.rows,
         {"PostAttentionRouter", router, router_in, logits, expert_scale, k, ids, weights});
}

void execute(const ResidualRouter& op, Context& context) {
  const Matrix router = matrix(op.router, "ResidualRouter.router");
  const int hidden = op.hidden, k = op.k;
  const size_t rows = op.rows;
  float* x = floats(op.x, rows * hidden, "ResidualRouter.x");
  const float* update = floats(op.update, rows * hidden, "ResidualRouter.update");
  const uint16_t* norm = halves(op.norm, hidden, "ResidualRouter.norm");
  float* normed = floats(op.normed, rows * hidden, "ResidualRouter.normed");
  int32_t* ids = integers(op.ids, rows * k, "ResidualRouter.ids");
  float* weights = floats(op.weights, rows * k, "ResidualRouter.weights");
  const LaneKernels& lanes = lane_kernels(context.options.isa);
  context.pool.run(op.rows, size_t(hidden) * 16, [&](int r) {
    const size_t at = size_t(r) * hidden;
    for (int i = 0; i < hidden; ++i) x[at + i] += update[at + i];
    lanes.norm(x + at, norm, hidden, op.eps, normed + at);
  });
  float* logits =
      reinterpret_cast<float*>(context.partials.reserve(rows * router.rows * sizeof(float)));
  choose(context, op.rows, {"ResidualRouter", router, normed, logits, nullptr, k, ids, weights});
}

}  // namespace mference::cpu
