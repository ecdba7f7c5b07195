#include "device/gpu/context.h"
#include "device/operands.h"

namespace mference::gpu {

namespace {

void check_parts(int parts, const char* field) {
  require(parts <= kMaxParts, field, "a GPU sums at most 128 outputs of a token");
}

}  // namespace

void encode(const LayerTail& op, Context& context) {
  require(op.hidden <= kRowThreads * kRowValues, "LayerTail.hidden",
          "a GPU normalizes at most 8192 values");
  check_parts(op.parts, "LayerTail.parts");
  if (op.rows == 0) return;
  const bool summed = op.parts == 0;
  context.launch("layer_tail", {},
                 {op.x, op.shared, op.routed, summed ? op.x : op.ids, summed ? op.x : op.weights,
                  op.post_shared, op.post_routed, op.post_layer, op.layer_scalar},
                 TailArguments{op.hidden, op.parts, op.eps},
                 {{uint32_t(op.rows), 1, 1}, kRowThreads});
}

void encode(const ResidualTail& op, Context& context) {
  check_parts(op.parts, "ResidualTail.parts");
  if (op.rows == 0) return;
  const bool summed = op.parts == 0;
  context.launch("residual_tail", {},
                 {op.x, op.shared, op.routed, summed ? op.x : op.ids, summed ? op.x : op.weights},
                 TailArguments{op.hidden, op.parts, 0.0f},
                 {{blocks(op.hidden, 256), uint32_t(op.rows), 1}, 256});
}

}  // namespace mference::gpu
