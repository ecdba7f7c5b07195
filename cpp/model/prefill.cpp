// A chunk of prompt tokens through the model, layer by layer. The chunk's rows are grouped by
// expert, and experts pass in tiles in ascending id: while the device computes one tile, the next
// one is read. Each expert is read at most once a chunk.
#include <algorithm>

#include "model/model.h"

namespace mference {

namespace {

struct Group {
  int expert = 0;
  int first = 0;
  int last = 0;
};

// Sorts the (row, rank) pairs by expert, keeping their order within one, and says where each
// expert's pairs lie.
std::vector<Group> group_by_expert(std::span<const int32_t> ids, int experts,
                                   std::span<int32_t> pairs) {
  std::vector<int> next(experts + 1, 0);
  for (const int32_t id : ids) ++next[id + 1];
  for (int e = 0; e < experts; ++e) next[e + 1] += next[e];
  std::vector<Group> groups;
  for (int e = 0; e < experts; ++e) {
    if (next[e + 1] > next[e]) groups.push_back({e, next[e], next[e + 1]});
  }
  for (size_t p = 0; p < ids.size(); ++p) pairs[next[ids[p]]++] = static_cast<int32_t>(p);
  return groups;
}

}  // namespace

void Model::prefill(std::span<const int32_t> chunk, Head head,
                    const std::function<void()>& interrupt) {
  const Pass pass{static_cast<int>(chunk.size()), kv_.position()};
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
  const auto groups =
      group_by_expert(forward_->ids(pass), init_.arch.experts, forward_->pairs(pass));
  // Two tiles must fit: one being computed and one being read.
  const size_t tile = init_.slots == 0 ? RoutedExperts::kMaxTile
                                       : std::clamp(init_.slots / 2, 1, RoutedExperts::kMaxTile);

  const auto request = [&](size_t first, std::span<const int> avoid) {
    std::vector<int> wanted;
    for (size_t g = first; g < std::min(first + tile, groups.size()); ++g) {
      wanted.push_back(groups[g].expert);
    }
    return streamer.request(wanted, avoid).value();
  };

  auto current = request(0, {});
  for (size_t first = 0; first < groups.size(); first += tile) {
    streamer.complete(current);
    std::vector<RoutedExpert> experts;
    for (size_t i = 0; i < current.plan.experts.size(); ++i) {
      const Group& group = groups[first + i];
      experts.push_back(
          {streamer.view(current.plan, static_cast<int>(i)), group.first, group.last});
    }
    forward_->routed(*stream_, layer, pass, {experts, true});
    stream_->signal(*computed_, ++computed_ticks_);
    stream_->commit();
    if (first + tile >= groups.size()) break;
    // The next tile may overwrite any slot but this tile's: the one before must have run.
    computed_->wait(computed_ticks_ - 1);
    stream_->check();
    current = request(first + tile, current.plan.slots);
  }
}

}  // namespace mference
