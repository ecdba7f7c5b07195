// A chunk of prompt tokens through the model, layer by layer. The chunk's rows are grouped by
// expert, and experts pass in tiles in ascending id: while the device computes one tile, the next
// one is read. Each expert is read at most once a chunk.
#include <deque>
#include <optional>
#include <utility>

#include "model/model.h"
#include "model/tiles.h"

namespace mference {

namespace {

// One tile is computed while the next one is read.
constexpr int kLookAhead = 1;

// The largest tile that leaves room for the look-ahead.
int tile_experts(int slots) {
  int experts = RoutedExperts::kMaxTile;
  while (experts > 1 && !fits_slots(kLookAhead, experts, slots)) --experts;
  return experts;
}

// A tile that the device may still be computing: the slots it reads, and the tick at its end.
struct TileInFlight {
  std::vector<int> slots;
  uint64_t tick = 0;
};

std::vector<int> slots_of(const std::deque<TileInFlight>& tiles) {
  std::vector<int> slots;
  for (const TileInFlight& tile : tiles) {
    slots.insert(slots.end(), tile.slots.begin(), tile.slots.end());
  }
  return slots;
}

}  // namespace

void Model::prefill(std::span<const int32_t> chunk, Head head,
                    const std::function<void()>& interrupt) {
  const Pass pass{static_cast<int>(chunk.size()), position()};
  forward_->begin(*stream_, chunk, pass);
  for (int layer = 0; layer < init_.arch.layers; ++layer) {
    if (interrupt) interrupt();
    route(layer, pass);
    prefill_experts(layer, pass);
    forward_->tail(*stream_, layer, pass);
  }
  finish(pass, head);
}

void Model::prefill_experts(int layer, Pass pass) {
  ExpertStreamer& streamer = *experts_[layer];
  const bool mapped = streamer.slots() == 0;
  const auto groups = group_by_expert(forward_->ids(pass), pass.count, init_.arch.top_k,
                                      init_.arch.experts, forward_->pairs(pass));
  const int most = mapped ? RoutedExperts::kMaxTile : tile_experts(streamer.slots());

  std::deque<TileInFlight> in_flight;
  for (const ExpertTile& tile : tiles_of(groups, most)) {
    const auto members = std::span(groups).subspan(tile.first_group, tile.groups);
    std::vector<int> wanted;
    for (const ExpertGroup& group : members) wanted.push_back(group.expert);

    std::optional<ExpertStreamer::Request> request;
    const auto place = [&](std::span<const int> avoid) {
      request = streamer.request(wanted, avoid);
      return request.has_value();
    };
    while (drains(next_tile(std::ssize(in_flight), slots_of(in_flight), kLookAhead, place))) {
      computed_->wait(in_flight.front().tick);
      stream_->check();
      in_flight.pop_front();
    }
    streamer.complete(request.value());

    std::vector<RoutedExpert> experts;
    for (int i = 0; i < tile.groups; ++i) {
      experts.push_back(
          {streamer.view(request->plan, i), members[i].first, members[i].first + members[i].count});
    }
    forward_->routed(*stream_, layer, pass, {experts, true, {}});
    stream_->signal(*computed_, ++computed_ticks_);
    stream_->commit();
    // A mapped layer has no slots that anyone could overwrite.
    if (!mapped) in_flight.push_back({std::move(request->plan.slots), computed_ticks_});
  }
}

}  // namespace mference
