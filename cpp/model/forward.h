// One family's forward pass, as operations on a stream. The loops in decode.cpp and prefill.cpp
// drive it and know no family.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "model/arch.h"
#include "model/weights.h"
#include "state/kv.h"
#include "state/recurrent.h"

namespace mference {

enum class Head { kNone, kArgmax, kLogits };

// The tokens of one pass: `count` of them, the first at `position` of the sequence.
struct Pass {
  int count = 0;
  int position = 0;
};

// At most RoutedExperts::kMaxTile of a layer's experts, ready to run, or to be found by a guard.
// Their pairs index Forward::pairs().
struct Tile {
  std::span<const RoutedExpert> experts;
  bool accumulate = false;
  SlotGuard guard;
};

class Forward {
 public:
  virtual ~Forward() = default;

  // Uploads the tokens and embeds them.
  virtual void begin(Stream& stream, std::span<const int32_t> tokens, Pass pass) = 0;
  // Everything of a layer up to and including the router.
  virtual void mix(Stream& stream, int layer, Pass pass) = 0;
  // The branch that needs no routed expert.
  virtual void shared(Stream& stream, int layer, Pass pass) = 0;
  virtual void routed(Stream& stream, int layer, Pass pass, const Tile& tile) = 0;
  // Combines the branches.
  virtual void tail(Stream& stream, int layer, Pass pass) = 0;
  // The last row's argmax or logits.
  virtual void head(Stream& stream, Pass pass, Head head) = 0;

  // Where the router writes its choice: i32[count, top_k].
  virtual View choice() const = 0;

  // Host-visible, valid once the operations that write them have completed.
  virtual std::span<const int32_t> ids(Pass pass) const = 0;  // [count, top_k]
  virtual std::span<int32_t> pairs(Pass pass) = 0;            // [count * top_k], the host writes
  virtual int32_t token() const = 0;
  virtual std::span<const float> logits() const = 0;
};

// What a family is built from.
struct ForwardInit {
  Device& device;
  const Arch& arch;
  const Weights& weights;
  const ExpertShape& expert;
  const KvState& kv;
  const RecurrentState& recurrent;
  int chunk = 128;  // the most rows a pass may have
};

// What a layer keeps of a sequence.
struct LayerState {
  KvShape kv;
  RecurrentShape recurrent;
};

struct Family {
  std::string name;
  std::vector<LayerKind> kinds;  // of its layers
  std::vector<LayerState> (*states)(const Arch& arch);
  std::unique_ptr<Forward> (*make)(const ForwardInit& init);
};

// Raises DeviceError for a family this build does not know.
const Family& find_family(const std::string& name);

}  // namespace mference
