#include "device/check.h"

#include <algorithm>
#include <limits>

#include "device/operands.h"

namespace mference {

namespace {

constexpr int kMaxHeadDim = 1024;

void check_cache(const KvCache& cache, const char* field) {
  require(cache.capacity > 0 && cache.heads > 0, field, "the cache is empty");
  require(cache.dim > 0 && cache.dim % 16 == 0 && cache.dim <= kMaxHeadDim, field,
          "the head dimension must be a multiple of 16 up to 1024");
  const size_t count = size_t(cache.capacity) * cache.heads * cache.dim;
  for (const View& view : {cache.keys, cache.values}) {
    if (cache.type == KvType::kFloat16) {
      halves(view, count, field);
    } else {
      floats(view, count, field);
    }
  }
}

void check_positions(int position, int rows, const char* field) {
  require(position >= 0 && rows >= 0 && position <= std::numeric_limits<int>::max() - rows, field,
          "the positions do not fit an int");
}

void check_expert(const Matrix& gate, const Matrix& up, const Matrix& down, const char* field) {
  require(gate.rows == up.rows && gate.cols == up.cols, field, "gate and up differ in shape");
  require(down.cols == gate.rows && down.rows == gate.cols, field,
          "down is not the transpose of gate in shape");
}

}  // namespace

void check(const EmbedRows& op) {
  const Matrix table = matrix(op.table, "EmbedRows.table");
  integers(op.tokens, op.rows, "EmbedRows.tokens");
  floats(op.out, size_t(op.rows) * table.cols, "EmbedRows.out");
}

void check(const NormProject& op) {
  require(op.count > 0 && op.count <= NormProject::kMaxParts, "NormProject.count",
          "there must be one to four matrices");
  const size_t rows = op.rows;
  const int cols = op.parts[0].matrix.cols;
  for (int i = 0; i < op.count; ++i) {
    const Matrix m = matrix(op.parts[i].matrix, "NormProject.parts");
    require(m.cols == cols, "NormProject.parts", "the matrices differ in columns");
    floats(op.parts[i].out, rows * m.rows, "NormProject.parts");
  }
  floats(op.x, rows * cols, "NormProject.x");
  halves(op.norm, cols, "NormProject.norm");
}

void check(const QkvEpilogue& op) {
  check_cache(op.cache, "QkvEpilogue.cache");
  const size_t rows = op.rows, dim = op.cache.dim;
  check_positions(op.position, op.rows, "QkvEpilogue");
  require(op.rows <= op.cache.capacity, "QkvEpilogue.cache", "the ring is shorter than the rows");
  require(op.rotated >= 0 && op.rotated <= op.distance && op.distance <= op.cache.dim - op.rotated,
          "QkvEpilogue.rope", "the rotated pairs do not fit the head");
  require(op.q_width >= op.cache.dim, "QkvEpilogue.q_width", "a head's query does not fit it");
  floats(op.q, rows * op.heads * op.q_width, "QkvEpilogue.q");
  floats(op.q_out, rows * op.heads * dim, "QkvEpilogue.q_out");
  const bool in_place = op.q_out.buffer == op.q.buffer && op.q_out.offset == op.q.offset;
  require(!in_place || op.q_width == op.cache.dim, "QkvEpilogue.q_out",
          "only queries without gaps can be replaced in place");
  floats(op.k, rows * op.cache.heads * dim, "QkvEpilogue.k");
  floats(op.v, rows * op.cache.heads * dim, "QkvEpilogue.v");
  halves(op.q_norm, dim, "QkvEpilogue.q_norm");
  halves(op.k_norm, dim, "QkvEpilogue.k_norm");
  floats(op.rope, rows * op.rotated * 2, "QkvEpilogue.rope");
}

int first_position(const Attention& op, int row) {
  return op.window > 0 ? std::max(0, op.position + row + 1 - op.window) : 0;
}

void check(const Attention& op) {
  check_cache(op.cache, "Attention.cache");
  require(op.heads > 0 && op.heads % op.cache.heads == 0, "Attention",
          "the query heads must be a multiple of the cache's heads");
  require(op.window >= 0, "Attention", "the window is negative");
  check_positions(op.position, op.rows, "Attention");
  require(op.position + op.rows - first_position(op, 0) <= op.cache.capacity, "Attention.cache",
          "the ring is shorter than the positions that the rows may see");
  const size_t count = size_t(op.rows) * op.heads * op.cache.dim;
  floats(op.q, count, "Attention.q");
  floats(op.out, count, "Attention.out");
}

void check(const GateHeads& op) {
  require(op.heads > 0 && op.dim > 0, "GateHeads", "the shape is empty");
  require(op.width >= op.dim, "GateHeads.gate", "a head's gate does not fit its values");
  const size_t heads = size_t(op.rows) * op.heads;
  floats(op.x, heads * op.dim, "GateHeads.x");
  floats(op.gate, heads * op.width, "GateHeads.gate");
}

void check(const ConvolutionTail& op) {
  require(op.channels > 0, "ConvolutionTail.channels", "there are no channels");
  require(op.taps >= 2 && op.taps <= kMaxTaps, "ConvolutionTail.taps",
          "a convolution has 2 to 8 taps");
  const size_t channels = op.channels, count = size_t(op.rows) * channels;
  floats(op.x, count, "ConvolutionTail.x");
  floats(op.out, count, "ConvolutionTail.out");
  halves(op.weight, channels * op.taps, "ConvolutionTail.weight");
  if (op.type == KvType::kFloat16) {
    halves(op.tail, channels * (op.taps - 1), "ConvolutionTail.tail");
  } else {
    floats(op.tail, channels * (op.taps - 1), "ConvolutionTail.tail");
  }
}

void check(const GatedDelta& op) {
  require(op.key_heads > 0 && op.value_heads > 0 && op.value_heads % op.key_heads == 0,
          "GatedDelta", "the value heads must be a multiple of the key heads");
  const auto is_size = [](int dim) {
    return dim > 0 && dim % kDeltaDimStep == 0 && dim <= kMaxDeltaDim;
  };
  require(is_size(op.key_dim) && is_size(op.value_dim), "GatedDelta",
          "the dimensions of a head must be multiples of 32 up to 256");
  const size_t rows = op.rows, heads = op.value_heads;
  const size_t values = heads * op.value_dim;
  floats(op.mixed, rows * (2 * size_t(op.key_heads) * op.key_dim + values), "GatedDelta.mixed");
  floats(op.alpha, rows * heads, "GatedDelta.alpha");
  floats(op.beta, rows * heads, "GatedDelta.beta");
  floats(op.rate, heads, "GatedDelta.rate");
  floats(op.dt_bias, heads, "GatedDelta.dt_bias");
  floats(op.z, rows * values, "GatedDelta.z");
  halves(op.norm, op.value_dim, "GatedDelta.norm");
  floats(op.state, values * op.key_dim, "GatedDelta.state");
  floats(op.out, rows * values, "GatedDelta.out");
}

void check(const Project& op) {
  const Matrix weight = matrix(op.weight, "Project.weight");
  const size_t rows = op.rows;
  floats(op.x, rows * weight.cols, "Project.x");
  floats(op.out, rows * weight.rows, "Project.out");
}

void check(const PostAttentionRouter& op) {
  const Matrix router = matrix(op.router, "PostAttentionRouter.router");
  require(router.cols == op.hidden, "PostAttentionRouter.router", "columns differ from hidden");
  require(op.k > 0 && op.k <= router.rows, "PostAttentionRouter.k",
          "a token chooses at least one expert, and at most all");
  const size_t count = size_t(op.rows) * op.hidden, chosen = size_t(op.rows) * op.k;
  floats(op.x, count, "PostAttentionRouter.x");
  floats(op.attention, count, "PostAttentionRouter.attention");
  halves(op.post_attention, op.hidden, "PostAttentionRouter.post_attention");
  halves(op.pre_dense, op.hidden, "PostAttentionRouter.pre_dense");
  halves(op.pre_routed, op.hidden, "PostAttentionRouter.pre_routed");
  halves(op.router_scale, op.hidden, "PostAttentionRouter.router_scale");
  halves(op.expert_scale, router.rows, "PostAttentionRouter.expert_scale");
  floats(op.dense_in, count, "PostAttentionRouter.dense_in");
  floats(op.routed_in, count, "PostAttentionRouter.routed_in");
  integers(op.ids, chosen, "PostAttentionRouter.ids");
  floats(op.weights, chosen, "PostAttentionRouter.weights");
}

void check(const ResidualRouter& op) {
  const Matrix router = matrix(op.router, "ResidualRouter.router");
  require(router.cols == op.hidden, "ResidualRouter.router", "columns differ from hidden");
  require(op.k > 0 && op.k <= router.rows, "ResidualRouter.k",
          "a token chooses at least one expert, and at most all");
  const size_t count = size_t(op.rows) * op.hidden, chosen = size_t(op.rows) * op.k;
  floats(op.x, count, "ResidualRouter.x");
  floats(op.update, count, "ResidualRouter.update");
  halves(op.norm, op.hidden, "ResidualRouter.norm");
  floats(op.normed, count, "ResidualRouter.normed");
  integers(op.ids, chosen, "ResidualRouter.ids");
  floats(op.weights, chosen, "ResidualRouter.weights");
}

void check(const SharedExpert& op) {
  const Matrix gate = matrix(op.gate, "SharedExpert.gate");
  const Matrix down = matrix(op.down, "SharedExpert.down");
  check_expert(gate, matrix(op.up, "SharedExpert.up"), down, "SharedExpert");
  if (op.scalar_gate.rows > 0) {
    const Matrix scalar = matrix(op.scalar_gate, "SharedExpert.scalar_gate");
    require(scalar.rows == 1 && scalar.cols == gate.cols, "SharedExpert.scalar_gate",
            "it must be one row of the columns of gate");
  }
  const size_t rows = op.rows;
  floats(op.x, rows * gate.cols, "SharedExpert.x");
  floats(op.scratch, rows * gate.rows, "SharedExpert.scratch");
  floats(op.out, rows * down.rows, "SharedExpert.out");
}

void check(const LookUpSlots& op) {
  require(op.experts > 0 && op.k > 0, "LookUpSlots", "the shape is empty");
  integers(op.ids, op.k, "LookUpSlots.ids");
  halves(op.table, op.experts, "LookUpSlots.table");
  integers(op.slots, op.k, "LookUpSlots.slots");
  integers(op.hit, 1, "LookUpSlots.hit");
}

Affine expert_matrix(const View& blob, const ExpertShape::Part& part, int rows, int cols) {
  constexpr const char* kField = "RoutedExperts.experts";
  require(part.group > 0, kField, "the group is not positive");
  const size_t codes = size_t(rows) * cols * part.bits / 8;
  const size_t groups = size_t(rows) * (cols / part.group) * sizeof(uint16_t);
  const auto fits = [&](size_t offset, size_t size) {
    return size <= blob.size && offset <= blob.size - size;
  };
  require(fits(part.weight, codes) && fits(part.scales, groups) && fits(part.biases, groups),
          kField, "a part leaves the expert's blob");
  Affine affine;
  affine.weight = blob.at(part.weight, codes);
  affine.scales = blob.at(part.scales, groups);
  affine.biases = blob.at(part.biases, groups);
  affine.rows = rows;
  affine.cols = cols;
  affine.bits = part.bits;
  affine.group = part.group;
  return affine;
}

void check(const RoutedExperts& op) {
  const ExpertShape& shape = op.shape;
  require(shape.hidden > 0 && shape.width > 0 && op.k > 0, "RoutedExperts", "the shape is empty");
  require(op.count >= 0 && op.count <= RoutedExperts::kMaxTile, "RoutedExperts.count",
          "a tile holds at most eight experts");
  require(op.rows > 0, "RoutedExperts.rows", "there are no rows");
  const size_t rows = op.rows;
  floats(op.x, rows * shape.hidden, "RoutedExperts.x");
  const int listed = static_cast<int>(op.pairs.size / sizeof(int32_t));
  integers(op.pairs, 0, "RoutedExperts.pairs");
  size_t tile_pairs = 0;
  for (int e = 0; e < op.count; ++e) {
    const RoutedExpert& routed = op.experts[e];
    require(routed.first >= 0 && routed.first <= routed.last && routed.last <= listed,
            "RoutedExperts.experts", "an expert's pairs leave the list of pairs");
    constexpr const char* kField = "RoutedExperts.experts";
    matrix(expert_matrix(routed.blob, shape.gate, shape.width, shape.hidden), kField);
    matrix(expert_matrix(routed.blob, shape.up, shape.width, shape.hidden), kField);
    matrix(expert_matrix(routed.blob, shape.down, shape.hidden, shape.width), kField);
    tile_pairs += routed.last - routed.first;
  }
  require(op.guard || !(op.guard.slots || op.guard.hit), "RoutedExperts.guard",
          "a guard without a slab guards nothing");
  if (op.guard) {
    require(rows == 1 && !op.accumulate, "RoutedExperts.guard", "a guard serves one row");
    halves(op.guard.slab, op.guard.stride / 2, "RoutedExperts.guard");
    require(op.guard.stride > 0 && op.guard.stride % 2 == 0, "RoutedExperts.guard",
            "the stride must be even");
    for (int e = 0; e < op.count; ++e) {
      const RoutedExpert& routed = op.experts[e];
      require(routed.last == routed.first + 1 && routed.last <= op.k &&
                  routed.blob.size <= op.guard.stride,
              "RoutedExperts.guard", "a guarded expert has one pair, and its blob fits a slot");
    }
    integers(op.guard.slots, op.k, "RoutedExperts.guard");
    integers(op.guard.hit, 1, "RoutedExperts.guard");
  }
  floats(op.scratch, tile_pairs * shape.width, "RoutedExperts.scratch");
  if (op.accumulate) floats(op.weights, rows * op.k, "RoutedExperts.weights");
  const size_t out_rows = op.accumulate ? rows : rows * op.k;
  floats(op.out, out_rows * shape.hidden, "RoutedExperts.out");
}

void check(const Zero& op) {
  floats(op.out, op.count, "Zero.out");
}

void check(const LayerTail& op) {
  require(op.hidden > 0 && op.parts >= 0, "LayerTail", "the shape is empty");
  const size_t rows = op.rows, hidden = op.hidden, parts = op.parts;
  floats(op.x, rows * hidden, "LayerTail.x");
  floats(op.shared, rows * hidden, "LayerTail.shared");
  floats(op.routed, rows * std::max<size_t>(parts, 1) * hidden, "LayerTail.routed");
  if (parts > 0) {
    integers(op.ids, rows * parts, "LayerTail.ids");
    floats(op.weights, rows * parts, "LayerTail.weights");
  }
  halves(op.post_shared, hidden, "LayerTail.post_shared");
  halves(op.post_routed, hidden, "LayerTail.post_routed");
  halves(op.post_layer, hidden, "LayerTail.post_layer");
  halves(op.layer_scalar, 1, "LayerTail.layer_scalar");
}

void check(const ResidualTail& op) {
  require(op.hidden > 0 && op.parts >= 0, "ResidualTail", "the shape is empty");
  const size_t rows = op.rows, hidden = op.hidden, parts = op.parts;
  floats(op.x, rows * hidden, "ResidualTail.x");
  floats(op.shared, rows * hidden, "ResidualTail.shared");
  floats(op.routed, rows * std::max<size_t>(parts, 1) * hidden, "ResidualTail.routed");
  if (parts > 0) {
    integers(op.ids, rows * parts, "ResidualTail.ids");
    floats(op.weights, rows * parts, "ResidualTail.weights");
  }
}

void check(const HeadArgmax& op) {
  const Matrix table = matrix(op.table, "HeadArgmax.table");
  integers(op.token, 1, "HeadArgmax.token");
  floats(op.x, table.cols, "HeadArgmax.x");
  halves(op.norm, table.cols, "HeadArgmax.norm");
}

void check(const HeadLogits& op) {
  const Matrix table = matrix(op.table, "HeadLogits.table");
  floats(op.logits, table.rows, "HeadLogits.logits");
  floats(op.x, table.cols, "HeadLogits.x");
  halves(op.norm, table.cols, "HeadLogits.norm");
}

void check(const TopCandidates& op) {
  require(op.vocabulary > 0 && op.count > 0 && op.count <= op.vocabulary, "TopCandidates.count",
          "more candidates than logits");
  floats(op.logits, op.vocabulary, "TopCandidates.logits");
  integers(op.ids, op.count, "TopCandidates.ids");
  floats(op.values, op.count, "TopCandidates.values");
  floats(op.log_sum, 1, "TopCandidates.log_sum");
}

}  // namespace mference
