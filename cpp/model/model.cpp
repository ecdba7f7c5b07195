#include "model/model.h"

#include <utility>

#include "base/errors.h"
#include "model/limits.h"
#include "model/tiles.h"

namespace mference {

namespace {

Sequence make_sequence(Device& device, const ModelInit& init) {
  std::vector<KvShape> kv;
  std::vector<RecurrentShape> recurrent;
  for (const LayerState& layer : find_family(init.arch.family).states(init.arch)) {
    kv.push_back(layer.kv);
    recurrent.push_back(layer.recurrent);
  }
  return {init.weights_path, device, kv, recurrent, init.context, init.chunk, init.kv_type};
}

}  // namespace

Model::Model(std::shared_ptr<Device> device, ModelInit init)
    : init_(checked(std::move(init))),
      device_(std::move(device)),
      weights_(*device_, init_.weights_path, std::move(init_.tensors)),
      sequence_(make_sequence(*device_, init_)),
      reader_(init_.readers),
      adviser_(init_.advice),
      routed_(device_->make_event()),
      computed_(device_->make_event()),
      routing_(init_.arch.layers, init_.arch.top_k),
      stream_(device_->make_stream()),
      gate_(*device_, [this](std::exception_ptr error) { stream_->abort(std::move(error)); }) {
  const Arch& arch = init_.arch;
  if (init_.slot_map && init_.slots > 0) {
    slot_map_.emplace(*device_, arch.layers, arch.experts, arch.top_k);
  }
  for (int layer = 0; layer < arch.layers; ++layer) {
    experts_.push_back(std::make_unique<ExpertStreamer>(
        *device_, reader_, adviser_, init_.experts, layer, init_.slots,
        slot_map_ ? slot_map_->table(layer) : std::span<int16_t>{}));
  }
  forward_ = find_family(arch.family)
                 .make({*device_, arch, weights_, init_.expert_shape, sequence_.kv(),
                        sequence_.recurrent(), init_.chunk});
}

Model::~Model() {
  // A stream that failed has nothing left to say: the error went to whoever ran the step.
  try {
    stream_->synchronize();
  } catch (const std::exception&) {
  }
}

void Model::check(std::span<const int32_t> tokens) const {
  if (tokens.empty()) throw DeviceError("no tokens to run");
  if (tokens.size() > static_cast<size_t>(init_.context - position())) {
    throw DeviceError(std::to_string(tokens.size()) + " tokens at position " +
                      std::to_string(position()) + " pass the context of " +
                      std::to_string(init_.context) + " tokens");
  }
  for (const int32_t token : tokens) {
    if (token < 0 || token >= init_.arch.vocabulary) {
      throw DeviceError("token " + std::to_string(token) + " is outside the vocabulary of " +
                        std::to_string(init_.arch.vocabulary));
    }
  }
}

void Model::forward(std::span<const int32_t> tokens, Head head,
                    const std::function<void()>& interrupt) {
  check(tokens);
  try {
    for (const ChunkSpan span : chunk_spans(static_cast<int>(tokens.size()), init_.chunk)) {
      const auto chunk = tokens.subspan(span.first, span.count);
      const Head last = span.first + span.count == std::ssize(tokens) ? head : Head::kNone;
      sequence_.begin(static_cast<int>(chunk.size()));
      adviser_.begin();
      routing_.begin(static_cast<int>(chunk.size()));
      if (chunk.size() == 1) {
        decode(chunk, last, interrupt);
      } else {
        prefill(chunk, last, interrupt);
      }
      sequence_.end(static_cast<int>(chunk.size()));
      phases_.tokens += chunk.size();
      ++phases_.passes;
      routing_.end();
      memory_.sample();
    }
  } catch (...) {
    // What is still queued reads slots and rows that the next step will reuse.
    try {
      stream_->synchronize();
    } catch (const std::exception&) {
    }
    try {
      settle();
    } catch (const std::exception&) {
    }
    throw;
  }
}

ExpertCounters Model::counters() const {
  ExpertCounters total;
  for (const auto& layer : experts_) {
    const ExpertCounters& c = layer->counters();
    total.hits += c.hits;
    total.misses += c.misses;
    total.evictions += c.evictions;
    total.bytes_read += c.bytes_read;
    total.read_nanoseconds += c.read_nanoseconds;
    total.fill_nanoseconds += c.fill_nanoseconds;
    total.exposed_nanoseconds += c.exposed_nanoseconds;
    total.advice_calls += c.advice_calls;
    total.advice_bytes += c.advice_bytes;
  }
  // With eager commits it is the stream that stands still for reads.
  total.exposed_nanoseconds += stream_->stalled_nanoseconds();
  return total;
}

}  // namespace mference
