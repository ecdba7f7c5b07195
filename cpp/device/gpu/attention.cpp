// Queries, keys and values: preparing them, caching them, attending to them.
#include <algorithm>

#include "device/check.h"
#include "device/gpu/context.h"
#include "device/operands.h"

namespace mference::gpu {

namespace {

constexpr int kSplitPositions = 32;  // at least, of a split
constexpr int kMaxTileDim = 512;

int32_t is_half(const KvCache& cache) {
  return cache.type == KvType::kFloat16 ? 1 : 0;
}

AttentionArguments arguments_of(const Attention& op) {
  AttentionArguments a{};
  a.rows = op.rows;
  a.heads = op.heads;
  a.kv_heads = op.cache.heads;
  a.dim = op.cache.dim;
  a.capacity = op.cache.capacity;
  a.position = op.position;
  a.window = op.window;
  a.scale = op.scale;
  return a;
}

bool fits_tiles(const Attention& op) {
  const int shared = op.heads / op.cache.heads;
  return op.rows >= kTileFrom && kTileQueries % shared == 0 && op.cache.capacity % 8 == 0 &&
         op.cache.dim % 32 == 0 && op.cache.dim <= kMaxTileDim;
}

void encode_tiles(const Attention& op, Context& context) {
  const int rows = kTileQueries / (op.heads / op.cache.heads);
  Constants constants;
  constants.half_cache = is_half(op.cache);
  context.launch("attention_tiles", constants, {op.q, op.cache.keys, op.cache.values, op.out},
                 arguments_of(op),
                 {{uint32_t(op.cache.heads), blocks(op.rows, rows), 1},
                  128,
                  sizeof(float) * kTileQueries * op.cache.dim});
}

// The rows of `op`, whose partial averages fit the scratch memory.
void encode_splits(const Attention& op, Context& context) {
  AttentionArguments a = arguments_of(op);
  const int last = op.rows - 1;
  const int seen = op.position + op.rows - first_position(op, last);
  const int splits = std::max(1, kMaxSplits / op.rows);
  a.length = std::max(kSplitPositions, (seen + splits - 1) / splits);
  a.splits = (seen + a.length - 1) / a.length;
  const size_t count = size_t(op.rows) * op.heads * a.splits;
  const View partials =
      context.scratch(Context::kPartials, count * (op.cache.dim + 4) * sizeof(float));
  Constants constants;
  constants.half_cache = is_half(op.cache);
  while (constants.head_chunks * 128 < op.cache.dim) constants.head_chunks *= 2;
  const int shared = op.heads / op.cache.heads;
  context.launch("attention_split", constants, {op.q, op.cache.keys, op.cache.values, partials}, a,
                 {{uint32_t(a.splits), uint32_t(op.cache.heads), uint32_t(op.rows)},
                  blocks(shared, kHeadPairs) * kLanes});
  context.launch("attention_merge", {}, {partials, op.out}, a,
                 {{uint32_t(op.heads), uint32_t(op.rows), 1}, 128});
}

}  // namespace

void encode(const QkvEpilogue& op, Context& context) {
  if (op.rows == 0) return;
  Constants constants;
  constants.half_cache = is_half(op.cache);
  EpilogueArguments arguments{};
  arguments.heads = op.heads;
  arguments.kv_heads = op.cache.heads;
  arguments.dim = op.cache.dim;
  arguments.q_width = op.q_width;
  arguments.rotated = op.rotated;
  arguments.distance = op.distance;
  arguments.capacity = op.cache.capacity;
  arguments.position = op.position;
  arguments.norm_values = op.norm_values ? 1 : 0;
  arguments.eps = op.eps;
  context.launch(
      "qkv_epilogue", constants,
      {op.q, op.q_out, op.k, op.v, op.q_norm, op.k_norm, op.rope, op.cache.keys, op.cache.values},
      arguments, {{uint32_t(op.heads + 2 * op.cache.heads), uint32_t(op.rows), 1}, kLanes});
}

void encode(const GateHeads& op, Context& context) {
  if (op.rows == 0) return;
  context.launch("gate_heads", {}, {op.x, op.gate}, GateArguments{op.heads, op.dim, op.width},
                 {{blocks(int64_t{op.heads} * op.dim, 256), uint32_t(op.rows), 1}, 256});
}

void encode(const Attention& op, Context& context) {
  if (op.rows == 0) return;
  vectors(op.q, "Attention.q");
  vectors(op.cache.keys, "Attention.cache");
  vectors(op.cache.values, "Attention.cache");
  require(op.heads / op.cache.heads <= 64, "Attention",
          "a GPU shares a KV head between at most 64 query heads");
  if (fits_tiles(op)) return encode_tiles(op, context);
  const size_t row = sizeof(float) * op.heads * op.cache.dim;
  for (int first = 0; first < op.rows; first += kMaxSplits) {
    Attention some = op;
    some.rows = std::min<int>(kMaxSplits, op.rows - first);
    some.position = op.position + first;
    some.q = op.q.at(first * row, some.rows * row);
    some.out = op.out.at(first * row, some.rows * row);
    encode_splits(some, context);
  }
}

}  // namespace mference::gpu
