#include "model/families/common.h"

#include <algorithm>
#include <cstring>

namespace mference {

namespace {
std::byte* host(const View& view) {
  return view.buffer->data() + view.offset;
}
}  // namespace

CommonForward::CommonForward(const ForwardInit& init)
    : arch_(init.arch), expert_(init.expert), device_(init.device) {
  const size_t rows = init.chunk, hidden = arch_.hidden, top_k = arch_.top_k;
  tokens_ = make(rows);
  x_ = make(rows * hidden);
  routed_in_ = make(rows * hidden);
  routed_ = make(std::max(rows, top_k) * hidden);
  ids_ = make(rows * top_k);
  weights_ = make(rows * top_k);
  pairs_ = make(rows * top_k);
  scratch_ = make(rows * top_k * arch_.expert_width);
  logits_ = make(arch_.vocabulary);
  token_ = make(1);
}

View CommonForward::make(size_t count) {
  buffers_.push_back(device_.allocate(count * 4));
  return {buffers_.back().get(), 0, count * 4};
}

void CommonForward::embed(Stream& stream, std::span<const int32_t> tokens, Pass pass,
                          const Affine& table, float scale) {
  std::memcpy(host(tokens_), tokens.data(), tokens.size_bytes());
  EmbedRows embed;
  embed.table = table;
  embed.tokens = tokens_;
  embed.out = x_;
  embed.rows = pass.count;
  embed.scale = scale;
  stream.encode(embed);
}

void CommonForward::start_routed(Stream& stream, Pass pass) {
  if (pass.count > 1) stream.encode(Zero{routed_, pass.count * arch_.hidden});
}

void CommonForward::routed(Stream& stream, int /*layer*/, Pass pass, const Tile& tile) {
  RoutedExperts routed;
  routed.x = routed_in_;
  routed.pairs = pairs_;
  routed.weights = weights_;
  routed.scratch = scratch_;
  routed.out = routed_;
  routed.shape = expert_;
  std::copy(tile.experts.begin(), tile.experts.end(), routed.experts.begin());
  routed.guard = tile.guard;
  routed.count = static_cast<int>(tile.experts.size());
  routed.rows = pass.count;
  routed.k = arch_.top_k;
  routed.accumulate = tile.accumulate;
  stream.encode(routed);
}

void CommonForward::head(Stream& stream, Pass pass, Head head) {
  const size_t row = sizeof(float) * static_cast<size_t>(arch_.hidden);
  const View last = x_.at(row * static_cast<size_t>(pass.count - 1), row);
  if (head == Head::kArgmax) {
    stream.encode(HeadArgmax{last, output_.norm, output_.table, token_, output_.eps});
  } else if (head == Head::kLogits) {
    stream.encode(
        HeadLogits{last, output_.norm, output_.table, logits_, output_.softcap, output_.eps});
  }
}

std::span<const int32_t> CommonForward::ids(Pass pass) const {
  return {reinterpret_cast<const int32_t*>(host(ids_)),
          static_cast<size_t>(pass.count) * arch_.top_k};
}

std::span<int32_t> CommonForward::pairs(Pass pass) {
  return {reinterpret_cast<int32_t*>(host(pairs_)), static_cast<size_t>(pass.count) * arch_.top_k};
}

int32_t CommonForward::token() const {
  return *reinterpret_cast<const int32_t*>(host(token_));
}

std::span<const float> CommonForward::logits() const {
  return {reinterpret_cast<const float*>(host(logits_)), static_cast<size_t>(arch_.vocabulary)};
}

}  // namespace mference
