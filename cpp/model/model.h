// A loaded model: weights, experts, one sequence's state, and the two loops that advance it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/memory_peak.h"
#include "device/device.h"
#include "experts/fill_gate.h"
#include "experts/slot_map.h"
#include "experts/streamer.h"
#include "model/arch.h"
#include "model/forward.h"
#include "model/routing_trace.h"
#include "model/weights.h"
#include "state/sequence.h"

namespace mference {

struct ModelInit {
  Arch arch;
  std::string weights_path;
  std::unordered_map<std::string, Tensor> tensors;
  ExpertFiles experts;
  ExpertShape expert_shape;
  int slots = 16;  // for each layer; 0 maps the layer files
  int context = 4096;
  int chunk = 128;
  int readers = 8;
  AdviceMode advice = AdviceMode::kOff;
  KvType kv_type = KvType::kFloat16;
  // Commit a token's missing experts before their reads have landed, gated by an event, instead of
  // letting the host wait for the reads first. The same bytes either way.
  bool eager = true;
  // Let the device look up a token's experts, and run them itself if all have slots. The same bytes
  // either way.
  bool slot_map = false;
};

// Host-side times of a run in nanoseconds. mix, routed and head are the time to encode and commit;
// router_wait and exposed reads are the time the host stood still.
struct Phases {
  uint64_t mix = 0;
  uint64_t router_wait = 0;
  uint64_t routed = 0;
  uint64_t head = 0;
  uint64_t eager = 0;  // routed commits that were made before their reads had landed
  // Layers of a token whose experts the device found by itself, so that the host planned nothing.
  uint64_t all_hit = 0;
  uint64_t passes = 0;
  uint64_t tokens = 0;
};

class Model {
 public:
  Model(std::shared_ptr<Device> device, ModelInit init);
  ~Model();

  // Appends tokens to the sequence and computes the last one's head. One token is a decode step;
  // more are prefilled in chunks. `interrupt` is called between layers and may throw; the position
  // then stays at the last completed chunk. A failed read raises ExpertFillError likewise.
  void forward(std::span<const int32_t> tokens, Head head,
               const std::function<void()>& interrupt = {});
  int32_t token() const { return forward_->token(); }
  std::span<const float> logits() const { return forward_->logits(); }
  int position() const { return sequence_.position(); }
  void rewind(int position) { sequence_.rewind(position); }
  Snapshot save() const { return sequence_.save(); }
  void restore(const Snapshot& snapshot) { sequence_.restore(snapshot); }
  const Arch& arch() const { return init_.arch; }
  const Sequence& sequence() const { return sequence_; }
  int slots() const { return init_.slots; }
  ExpertCounters counters() const;
  const Phases& phases() const { return phases_; }
  const MemoryPeak& memory() const { return memory_; }
  RoutingTrace& routing() { return routing_; }

 private:
  void check(std::span<const int32_t> tokens) const;
  void decode(std::span<const int32_t> token, Head head, const std::function<void()>& interrupt);
  void prefill(std::span<const int32_t> chunk, Head head, const std::function<void()>& interrupt);
  void prefill_experts(int layer, Pass pass);
  // Encodes a decode step's experts, in tiles.
  void encode_routed(int layer, Pass pass, std::span<const RoutedExpert> experts,
                     const SlotGuard& guard = {});
  void finish(Pass pass, Head head);
  // Runs the layer up to its router and starts the shared branch; the ids can then be read. With
  // `ahead` the device also looks the experts up, and runs them if it finds them all.
  void route(int layer, Pass pass, bool ahead = false);
  void encode_guarded(int layer, Pass pass);
  // Plans a token's experts of a layer, reads what is missing, and encodes them all.
  void plan_experts(int layer, Pass pass);
  // Encodes a token's missing experts of a layer, behind a wait for their reads.
  void encode_missing(int layer, Pass pass, std::span<const RoutedExpert> experts,
                      ExpertStreamer::Request request);
  // Ends the last request whose experts were committed before they had landed.
  void settle();

  ModelInit init_;
  std::shared_ptr<Device> device_;
  Weights weights_;
  Sequence sequence_;
  Reader reader_;
  Adviser adviser_;
  std::optional<SlotMap> slot_map_;
  std::vector<std::unique_ptr<ExpertStreamer>> experts_;
  std::unique_ptr<Forward> forward_;
  // A request that the stream waits for and the host has not completed yet.
  struct Unsettled {
    int layer = 0;
    ExpertStreamer::Request request;
  };
  std::optional<Unsettled> unsettled_;
  std::unique_ptr<Event> routed_;    // a layer's ids are ready
  std::unique_ptr<Event> computed_;  // a prefill tile's work is done
  uint64_t routed_ticks_ = 0;
  uint64_t computed_ticks_ = 0;
  Phases phases_;
  MemoryPeak memory_;
  RoutingTrace routing_;
  // Late, so that its queue is drained before anything it uses goes away.
  std::unique_ptr<Stream> stream_;
  // After the stream, which it tells of reads that failed.
  FillGate gate_;
};

}  // namespace mference
