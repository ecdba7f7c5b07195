#include <algorithm>

#include "device/gpu/context.h"
#include "device/operands.h"

namespace mference::gpu {

namespace {
// Rows whose scratch is held at a time.
constexpr int kPiece = 128;
}  // namespace

void encode(const PostAttentionRouter& op, Context& context) {
  require(op.hidden <= kRowThreads * kRowValues, "PostAttentionRouter.hidden",
          "a GPU normalizes at most 8192 values");
  const int experts = op.router.rows;
  const size_t row = sizeof(float) * op.hidden, choice = sizeof(float) * op.k;
  for (int first = 0; first < op.rows; first += kPiece) {
    const size_t rows = std::min(kPiece, op.rows - first);
    const auto some = [&](const View& view, size_t bytes) {
      return view.at(first * bytes, rows * bytes);
    };
    const View router_in = context.scratch(Context::kRouterIn, rows * row);
    const View logits = context.scratch(Context::kRouterLogits, rows * sizeof(float) * experts);
    const RouterArguments arguments{op.hidden, experts, op.k, op.eps};
    context.launch(
        "router_setup", {},
        {some(op.x, row), some(op.attention, row), op.post_attention, op.pre_dense, op.pre_routed,
         op.router_scale, some(op.dense_in, row), some(op.routed_in, row), router_in},
        arguments, {{uint32_t(rows), 1, 1}, kRowThreads});
    // Float32 weights whatever the rows: a rounding here could change a choice.
    Product product{router_in, {}, op.router, logits, static_cast<int>(rows)};
    product.exact = true;
    encode(product, context);
    context.launch(
        "router_choose", {},
        {logits, op.expert_scale, some(op.ids, choice), some(op.weights, choice), context.faults()},
        arguments, {{uint32_t(rows), 1, 1}, kLanes});
  }
}

}  // namespace mference::gpu
