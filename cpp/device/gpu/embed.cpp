#include "device/gpu/context.h"

namespace mference::gpu {

void encode(const EmbedRows& op, Context& context) {
  if (op.rows == 0) return;
  Constants constants;
  set(constants, format_of(op.table));
  const EmbedArguments arguments{op.table.cols, op.table.rows, op.scale};
  context.launch(
      "embed_rows", constants,
      {op.table.weight, op.table.scales, op.table.biases, op.tokens, op.out, context.faults()},
      arguments, {{blocks(op.table.cols, 16 * 64), uint32_t(op.rows), 1}, 64});
}

void encode(const Zero& op, Context& context) {
  if (op.count == 0) return;
  context.launch("zero", {}, {op.out}, ZeroArguments{op.count},
                 {{blocks(op.count, 256), 1, 1}, 256});
}

}  // namespace mference::gpu
