// One sequence of tokens as a model remembers it: keys and values, recurrent states, and a position.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "state/kv.h"
#include "state/recurrent.h"

namespace mference {

// A sequence as it was at some position; good for the model that it was taken from, and for another
// of the same install whose keys and values lie in the same rows.
struct Snapshot {
  std::string model;
  KvType type = KvType::kFloat16;
  std::vector<int> capacities;  // of the layers' keys and values
  int position = 0;
  int written = 0;  // as in KvState
  std::vector<std::byte> kv, recurrent;
};

class Sequence {
 public:
  // `model` tells models apart. Raises DeviceError if the memory of a full context does not suffice.
  Sequence(std::string model, Device& device, const std::vector<KvShape>& kv,
           const std::vector<RecurrentShape>& recurrent, int context, int chunk, KvType type);

  const KvState& kv() const { return kv_; }
  const RecurrentState& recurrent() const { return recurrent_; }
  int position() const { return kv_.position(); }
  size_t bytes() const { return kv_.bytes() + recurrent_.bytes(); }

  // Around a pass of `rows` tokens. A pass that fails between the two leaves the position where it
  // was; recurrent states, which it may have advanced, are lost then, and the next begin() raises
  // DeviceError until the sequence is rewound to 0 or restored.
  void begin(int rows);
  void end(int rows);

  // Forgets the positions from `position` on. Raises DeviceError where that cannot be done: behind
  // what was overwritten, and with recurrent states anywhere but at 0 and at the position itself.
  void rewind(int position);

  Snapshot save() const;
  // Raises DeviceError if the snapshot is another model's, is longer than this context, or has rings
  // of another size.
  void restore(const Snapshot& snapshot);

 private:
  std::string model_;
  KvState kv_;
  RecurrentState recurrent_;
  bool lost_ = false;
};

}  // namespace mference
