// Mixers that carry a state from token to token: the convolution and the gated delta rule.
#include "device/check.h"
#include "device/gpu/context.h"

namespace mference::gpu {

void encode(const ConvolutionTail& op, Context& context) {
  static_assert(int{kConvolutionTaps} == kMaxTaps);
  if (op.rows == 0) return;
  Constants constants;
  constants.half_cache = op.type == KvType::kFloat16 ? 1 : 0;
  const ConvolutionArguments arguments{op.rows, op.channels, op.taps};
  const uint32_t channel_blocks = blocks(op.channels, kConvolutionThreads);
  context.launch("convolution", constants, {op.x, op.weight, op.tail, op.out}, arguments,
                 {{channel_blocks, blocks(op.rows, kConvolutionRows), 1}, kConvolutionThreads});
  // Threads that share a channel all read the tail before it changes.
  if (op.rows <= kConvolutionRows) return;
  context.launch("convolution_tail", constants, {op.x, op.tail}, arguments,
                 {{channel_blocks, uint32_t(op.taps - 1), 1}, kConvolutionThreads});
}

void encode(const GatedDelta& op, Context& context) {
  if (op.rows == 0) return;
  const View mixed = vectors(op.mixed, "GatedDelta.mixed");
  const View state = vectors(op.state, "GatedDelta.state");
  const View out = vectors(op.out, "GatedDelta.out");
  const View kq =
      context.scratch(Context::kKeysQueries, sizeof(float) * size_t(op.rows) * op.key_heads);
  const DeltaArguments arguments{op.rows,    op.key_heads, op.value_heads,
                                 op.key_dim, op.value_dim, op.eps};
  const uint32_t rows = op.rows, threads = kDeltaSimdgroups * kLanes;
  context.launch("delta_prepare", {}, {mixed, op.alpha, op.beta, op.rate, op.dt_bias, kq},
                 arguments, {{blocks(op.key_heads + 1, kDeltaSimdgroups), rows, 1}, threads});
  Constants constants;
  constants.head_chunks = op.key_dim > 128 ? 2 : 1;
  context.launch("delta_rule", constants, {mixed, op.alpha, op.beta, kq, state, out}, arguments,
                 {{uint32_t(op.value_dim / kDeltaBlock), uint32_t(op.value_heads), 1}, threads});
  context.launch("delta_finish", {}, {out, op.z, op.norm}, arguments,
                 {{blocks(op.value_heads, kDeltaSimdgroups), rows, 1}, threads});
}

}  // namespace mference::gpu
