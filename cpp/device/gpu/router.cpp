#include <algorithm>

#include "device/gpu/context.h"
#include "device/operands.h"

namespace mference::gpu {

namespace {
// Rows whose scratch is held at a time.
constexpr int kPiece = 128;

void check_hidden(int hidden, const char* field) {
  require(hidden <= kRowThreads * kRowValues, field, "a GPU normalizes at most 8192 values");
}

// The choice of experts for `rows` rows of x.
void choose(const View& x, size_t rows, const Affine& router, const View& expert_scale,
            const RouterArguments& arguments, const View& ids, const View& weights,
            Context& context) {
  const View logits =
      context.scratch(Context::kRouterLogits, rows * sizeof(float) * arguments.experts);
  // Float32 weights whatever the rows: a rounding here could change a choice.
  Product product{x, {}, router, logits, static_cast<int>(rows)};
  product.exact = true;
  encode(product, context);
  context.launch("router_choose", {}, {logits, expert_scale, ids, weights, context.faults()},
                 arguments, {{uint32_t(rows), 1, 1}, kLanes});
}

}  // namespace

void encode(const PostAttentionRouter& op, Context& context) {
  check_hidden(op.hidden, "PostAttentionRouter.hidden");
  const size_t row = sizeof(float) * op.hidden, choice = sizeof(float) * op.k;
  for (int first = 0; first < op.rows; first += kPiece) {
    const size_t rows = std::min(kPiece, op.rows - first);
    const auto some = [&](const View& view, size_t bytes) {
      return view.at(first * bytes, rows * bytes);
    };
    const View router_in = context.scratch(Context::kRouterIn, rows * row);
    const RouterArguments arguments{op.hidden, op.router.rows, op.k, 1, op.eps};
    context.launch(
        "router_setup", {},
        {some(op.x, row), some(op.attention, row), op.post_attention, op.pre_dense, op.pre_routed,
         op.router_scale, some(op.dense_in, row), some(op.routed_in, row), router_in},
        arguments, {{uint32_t(rows), 1, 1}, kRowThreads});
    choose(router_in, rows, op.router, op.expert_scale, arguments, some(op.ids, choice),
           some(op.weights, choice), context);
  }
}

void encode(const ResidualRouter& op, Context& context) {
  check_hidden(op.hidden, "ResidualRouter.hidden");
  if (op.rows == 0) return;
  const size_t row = sizeof(float) * op.hidden, choice = sizeof(float) * op.k;
  const RouterArguments arguments{op.hidden, op.router.rows, op.k, 0, op.eps};
  context.launch("residual_setup", {}, {op.x, op.update, op.norm, op.normed}, arguments,
                 {{uint32_t(op.rows), 1, 1}, kRowThreads});
  for (int first = 0; first < op.rows; first += kPiece) {
    const size_t rows = std::min(kPiece, op.rows - first);
    const auto some = [&](const View& view, size_t bytes) {
      return view.at(first * bytes, rows * bytes);
    };
    const View ids = some(op.ids, choice);
    // Without a scale any view will do in its place.
    choose(some(op.normed, row), rows, op.router, ids, arguments, ids, some(op.weights, choice),
           context);
  }
}

}  // namespace mference::gpu
