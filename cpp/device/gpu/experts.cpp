// The shared expert and the routed ones: down(act(gate x) * (up x)).
#include <algorithm>
#include <array>
#include <limits>

#include "device/check.h"
#include "device/gpu/context.h"

namespace mference::gpu {

namespace {

// The most pairs whose outputs are kept before they are added up. An expert is cut at multiples of
// it, so that which kernels its pairs take does not depend on the other experts of the tile.
constexpr int kPairsPerPiece = 1024;

int32_t is_silu(Activation activation) {
  return activation == Activation::kSilu ? 1 : 0;
}

PartOffsets offsets_of(const ExpertShape::Part& part) {
  return {uint32_t(part.weight), uint32_t(part.scales), uint32_t(part.biases)};
}

// Experts of a tile that run in the same launches.
struct Group {
  RoutedArguments arguments{};
  std::array<View, kMaxExperts> blobs;
  int count = 0;
  int most = 0;  // pairs of an expert
};

// One format for all experts of a group, or of a slab.
Format format_of(const Group& group, const SlotGuard& guard, const ExpertShape::Part& part,
                 int rows, int cols) {
  Format format = gpu::format_of(expert_matrix(group.blobs[0], part, rows, cols));
  if (guard) {
    if (guard.stride % 4 != 0) format.words = 0;
    return format;
  }
  for (int e = 1; e < group.count; ++e) {
    format = both(format, gpu::format_of(expert_matrix(group.blobs[e], part, rows, cols)));
  }
  return format;
}

class Routed {
 public:
  Routed(const RoutedExperts& op, Context& context) : op_(op), context_(context), shape_(op.shape) {
    int start = 0;
    for (int e = 0; e < op.count; ++e) {
      const RoutedExpert& routed = op.experts[e];
      const int pairs = routed.last - routed.first;
      starts_[e] = start;
      if (pairs > 0) add(pairs < kTileFrom ? few_ : many_, routed, pairs, start);
      start += pairs;
    }
    tile_pairs_ = start;
  }

  void run() {
    if (tile_pairs_ == 0) return;
    h_ = vectors(op_.scratch, "RoutedExperts.scratch");
    out_ = op_.out;
    if (op_.accumulate) {
      out_ = context_.scratch(Context::kExpertOut,
                              sizeof(float) * size_t(tile_pairs_) * shape_.hidden);
    }
    for (Group* group : {&few_, &many_}) {
      if (group->count > 0) run(*group, group == &many_);
    }
    if (op_.accumulate) add_up();
  }

 private:
  void add_up() {
    for (int e = 0; e < op_.count; ++e) {
      const RoutedExpert& routed = op_.experts[e];
      if (routed.first == routed.last) continue;
      const AccumulateArguments arguments{shape_.hidden, op_.k, op_.rows * op_.k, routed.first,
                                          starts_[e]};
      context_.launch("accumulate", {}, {out_, op_.pairs, op_.weights, op_.out}, arguments,
                      {{blocks(shape_.hidden, 128), uint32_t(routed.last - routed.first), 1}, 128});
    }
  }

  void add(Group& group, const RoutedExpert& routed, int pairs, int start) {
    group.arguments.first[group.count] = routed.first;
    group.arguments.count[group.count] = pairs;
    group.arguments.start[group.count] = start;
    // A guarded tile reads its slab, from the first slot on.
    group.blobs[group.count++] = op_.guard ? op_.guard.slab : routed.blob;
    group.most = std::max(group.most, pairs);
  }

  void run(Group& group, bool tiles) {
    RoutedArguments& a = group.arguments;
    a.gate = offsets_of(shape_.gate);
    a.up = offsets_of(shape_.up);
    a.down = offsets_of(shape_.down);
    a.hidden = shape_.hidden;
    a.width = shape_.width;
    a.k = op_.k;
    a.pairs = op_.rows * op_.k;
    a.accumulate = op_.accumulate ? 1 : 0;
    const SlotGuard& guard = op_.guard;
    if (guard) {
      a.slots = static_cast<int32_t>(
          std::min<size_t>(guard.slab.size / guard.stride, std::numeric_limits<int32_t>::max()));
      a.stride_low = static_cast<uint32_t>(guard.stride);
      a.stride_high = static_cast<uint32_t>(uint64_t{guard.stride} >> 32);
    }
    // Without a guard any views will do in their place.
    const View slots = guard ? guard.slots : op_.pairs, hit = guard ? guard.hit : op_.pairs;
    std::fill(group.blobs.begin() + group.count, group.blobs.end(), group.blobs[0]);
    const auto& b = group.blobs;
    const View x = vectors(op_.x, "RoutedExperts.x");
    const bool many = !tiles && group.most > 1;
    const uint32_t experts = group.count;
    Constants constants;
    set(constants, format_of(group, guard, shape_.gate, shape_.width, shape_.hidden));
    set_up(constants, format_of(group, guard, shape_.up, shape_.width, shape_.hidden));
    constants.many_tokens = many ? 1 : 0;
    constants.tensor = context_.tensor(tiles);
    constants.silu = is_silu(shape_.activation);
    constants.guarded = guard ? 1 : 0;
    Constants down = constants;
    set(down, format_of(group, guard, shape_.down, shape_.hidden, shape_.width));
    if (tiles) {
      const uint32_t pair_blocks = blocks(group.most, kTileTokens);
      context_.launch(
          "routed_gated_tiles", constants,
          {b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], x, op_.pairs, h_, context_.faults()}, a,
          {{blocks(shape_.width, kTileRows / 2), pair_blocks, experts}, kTileThreads});
      context_.launch("routed_down_tiles", down,
                      {b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], h_, op_.pairs, out_}, a,
                      {{blocks(shape_.hidden, kTileRows), pair_blocks, experts}, kTileThreads});
      return;
    }
    const uint32_t pair_blocks = blocks(group.most, many ? kGemvTokens : 1);
    const uint32_t threads = kGemvSimdgroups * kLanes;
    context_.launch("routed_gated", constants,
                    {b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], x, op_.pairs, h_,
                     context_.faults(), slots, hit},
                    a, {{blocks(shape_.width, kGemvBlock), pair_blocks, experts}, threads});
    context_.launch(
        "routed_down", down,
        {b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], h_, op_.pairs, out_, slots, hit}, a,
        {{blocks(shape_.hidden, kGemvBlock), pair_blocks, experts}, threads});
  }

  const RoutedExperts& op_;
  Context& context_;
  const ExpertShape& shape_;
  Group few_, many_;
  std::array<int, kMaxExperts> starts_{};
  int tile_pairs_ = 0;
  View h_, out_;
};

}  // namespace

void encode(const SharedExpert& op, Context& context) {
  if (op.rows == 0) return;
  const bool tiles = op.rows >= kTileFrom, many = !tiles && op.rows > 1;
  Constants constants;
  set(constants, format_of(op.gate));
  set_up(constants, format_of(op.up));
  constants.many_tokens = many ? 1 : 0;
  constants.tensor = context.tensor(tiles);
  constants.silu = is_silu(op.activation);
  // The scalar gate's products come with the first launch, in a block of their own.
  const bool gated = op.scalar_gate.rows > 0;
  const Affine& scalar = gated ? op.scalar_gate : op.gate;
  constants.gated = gated ? 1 : 0;
  const View gates = gated ? context.scratch(Context::kGates, op.rows * sizeof(float)) : View{};
  const Format format = format_of(scalar);
  const GatedArguments arguments{op.gate.cols, op.gate.rows, op.rows,
                                 format.bits,  format.group, format.words};
  const uint32_t row_blocks = blocks(op.gate.rows, tiles ? kTileRows / 2 : kGemvBlock);
  const uint32_t token_blocks = blocks(op.rows, tiles ? kTileTokens : many ? kGemvTokens : 1);
  context.launch(tiles ? "gated_tiles" : "gated", constants,
                 {vectors(op.x, "SharedExpert.x"), op.gate.weight, op.gate.scales, op.gate.biases,
                  op.up.weight, op.up.scales, op.up.biases, op.scratch, scalar.weight,
                  scalar.scales, scalar.biases, gated ? gates : op.scratch},
                 arguments,
                 {{row_blocks + (gated ? 1 : 0), token_blocks, 1},
                  tiles ? uint32_t{kTileThreads} : uint32_t{kGemvSimdgroups * kLanes}});
  Product down{op.scratch, {}, op.down, op.out, op.rows};
  down.gates = gates;
  encode(down, context);
}

void encode(const LookUpSlots& op, Context& context) {
  context.launch("look_up_slots", {}, {op.ids, op.table, op.slots, op.hit},
                 SlotArguments{op.experts, op.k}, {});
}

void encode(const RoutedExperts& op, Context& context) {
  if (!op.accumulate) {
    Routed(op, context).run();
    return;
  }
  RoutedExperts piece = op;
  piece.count = 0;
  int pairs = 0;
  const auto flush = [&] {
    Routed(piece, context).run();
    piece.count = pairs = 0;
  };
  for (int e = 0; e < op.count; ++e) {
    const RoutedExpert& routed = op.experts[e];
    for (int first = routed.first; first < routed.last; first += kPairsPerPiece) {
      const int last = std::min(first + kPairsPerPiece, routed.last);
      if (pairs + last - first > kPairsPerPiece) flush();
      piece.experts[piece.count++] = {routed.blob, first, last};
      pairs += last - first;
    }
  }
  flush();
}

}  // namespace mference::gpu
