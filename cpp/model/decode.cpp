// One token through the model. For each layer: mix (norm, projections, attention or another mixer,
// router), then the host reads the chosen experts, plans them, and reads the missing ones from disk
// while the device runs the shared branch and the experts that are cached; then the missing ones and
// the tail. What comes after the reads is committed at once and waits for them on the device, while
// the host already encodes the next layer. With a slot map the device looks the experts up itself:
// where it finds them all it has begun to run them before the host has read which they are, and the
// host plans nothing.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/stopwatch.h"
#include "model/model.h"

namespace mference {

void Model::route(int layer, Pass pass, bool ahead) {
  Stopwatch watch;
  forward_->mix(*stream_, layer, pass);
  if (ahead) stream_->encode(slot_map_->look_up(layer, forward_->choice()));
  stream_->signal(*routed_, ++routed_ticks_);
  stream_->commit();
  forward_->shared(*stream_, layer, pass);
  if (ahead) encode_guarded(layer, pass);
  stream_->commit();
  watch.lap(phases_.mix);
  routed_->wait(routed_ticks_);
  settle();
  stream_->check();
  watch.lap(phases_.router_wait);
  routing_.add(layer, forward_->ids(pass));
}

void Model::encode_guarded(int layer, Pass pass) {
  const ExpertStreamer& streamer = *experts_[layer];
  const SlotGuard guard = slot_map_->guard(streamer.slab(), streamer.stride());
  const View any = streamer.slab().at(0, streamer.stride());
  std::vector<RoutedExpert> experts;
  for (int rank = 0; rank < init_.arch.top_k; ++rank) experts.push_back({any, rank, rank + 1});
  encode_routed(layer, pass, experts, guard);
}

void Model::encode_routed(int layer, Pass pass, std::span<const RoutedExpert> experts,
                          const SlotGuard& guard) {
  while (!experts.empty()) {
    const auto tile = experts.first(std::min<size_t>(experts.size(), RoutedExperts::kMaxTile));
    forward_->routed(*stream_, layer, pass, {tile, false, guard});
    experts = experts.subspan(tile.size());
  }
}

void Model::finish(Pass pass, Head head) {
  Stopwatch watch;
  forward_->head(*stream_, pass, head);
  stream_->synchronize();
  watch.lap(phases_.head);
}

void Model::decode(std::span<const int32_t> token, Head head,
                   const std::function<void()>& interrupt) {
  const Pass pass{1, position()};
  forward_->begin(*stream_, token, pass);
  const auto pairs = forward_->pairs(pass);
  std::iota(pairs.begin(), pairs.end(), 0);

  for (int layer = 0; layer < init_.arch.layers; ++layer) {
    if (interrupt) interrupt();
    const bool ahead = slot_map_ && experts_[layer]->slab();
    route(layer, pass, ahead);
    if (ahead && slot_map_->hit()) {
      experts_[layer]->note_hits(forward_->ids(pass));
      ++phases_.all_hit;
    } else {
      plan_experts(layer, pass);
    }
    forward_->tail(*stream_, layer, pass);
  }
  finish(pass, head);
  settle();
}

void Model::plan_experts(int layer, Pass pass) {
  auto request = experts_[layer]->request(forward_->ids(pass)).value();
  Stopwatch watch;
  std::vector<RoutedExpert> hits, misses;
  for (int rank = 0; rank < init_.arch.top_k; ++rank) {
    const View blob = experts_[layer]->view(request.plan, rank);
    (request.plan.missing(rank) ? misses : hits).push_back({blob, rank, rank + 1});
  }
  encode_routed(layer, pass, hits);
  stream_->commit();
  watch.lap(phases_.routed);
  encode_missing(layer, pass, misses, std::move(request));
}

void Model::encode_missing(int layer, Pass pass, std::span<const RoutedExpert> experts,
                           ExpertStreamer::Request request) {
  if (experts.empty()) return;
  if (!init_.eager) {
    experts_[layer]->complete(request);
    encode_routed(layer, pass, experts);
    return;
  }
  const auto fill = request.fill;
  stream_->wait(gate_.event(), gate_.add(*fill));
  unsettled_ = {layer, std::move(request)};
  encode_routed(layer, pass, experts);
  stream_->commit();
  if (!fill->ended()) ++phases_.eager;
}

void Model::settle() {
  if (!unsettled_) return;
  Unsettled last = *std::exchange(unsettled_, std::nullopt);
  experts_[last.layer]->complete(last.request);
}

}  // namespace mference
