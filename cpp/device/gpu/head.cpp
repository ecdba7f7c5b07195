// From the last hidden state to logits, a token, or candidates for sampling.
#include <utility>

#include "device/gpu/context.h"
#include "device/operands.h"

namespace mference::gpu {

void encode(const HeadArgmax& op, Context& context) {
  const uint32_t count = blocks(op.table.rows, kHeadBlock);
  const View best = context.scratch(Context::kBest, count * sizeof(uint64_t));
  Constants constants;
  set(constants, format_of(op.table));
  constants.norm = 1;
  const ArgmaxArguments arguments{op.table.cols, op.table.rows, int32_t(count), op.eps};
  context.launch("argmax_blocks", constants,
                 {vectors(op.x, "HeadArgmax.x"), op.norm, op.table.weight, op.table.scales,
                  op.table.biases, best},
                 arguments, {{count, 1, 1}, 256});
  context.launch("argmax_finish", {}, {best, op.token, context.faults()}, arguments,
                 {{1, 1, 1}, 256});
}

void encode(const HeadLogits& op, Context& context) {
  Product product{op.x, op.norm, op.table, op.logits, 1, op.eps};
  product.softcap = op.softcap;
  encode(product, context);
}

void encode(const TopCandidates& op, Context& context) {
  require(op.count <= kSortBlock / 2, "TopCandidates.count", "a GPU finds at most 1024 candidates");
  const uint32_t first_blocks = blocks(op.vocabulary, kSortBlock);
  const size_t bytes = size_t(first_blocks) * op.count * sizeof(uint64_t);
  View from = context.scratch(Context::kSortA, bytes);
  View to = context.scratch(Context::kSortB, bytes);
  const View sums = context.scratch(Context::kSums, first_blocks * 2 * sizeof(float));
  // Every round leaves the best of each block: at most half as many blocks for the next one.
  CandidateArguments arguments{op.vocabulary, op.count, 1};
  for (uint32_t count = first_blocks;; count = blocks(arguments.entries, kSortBlock)) {
    context.launch("candidates_sort", {}, {op.logits, from, to, sums}, arguments,
                   {{count, 1, 1}, kSortThreads});
    std::swap(from, to);
    if (count == 1) break;
    arguments = {int32_t(count) * op.count, op.count, 0};
  }
  context.launch("candidates_finish", {},
                 {op.logits, from, sums, op.ids, op.values, op.log_sum, context.faults()},
                 FinishArguments{op.count, int32_t(first_blocks), op.vocabulary}, {});
}

}  // namespace mference::gpu
