// Which experts the router chose: one row of [layers, top_k] ids for each token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mference {

class RoutingTrace {
 public:
  RoutingTrace(int layers, int top_k) : layers_(layers), top_k_(top_k) {}

  // Starts an empty trace, or stops; what was recorded stays until the next start.
  void record(bool on) {
    recording_ = on;
    if (on) ids_.clear();
  }

  // A pass begins; layers without a router keep -1.
  void begin(int tokens) {
    if (recording_) pass_.assign(static_cast<size_t>(tokens) * layers_ * top_k_, -1);
  }
  // A layer's ids [tokens, top_k].
  void add(int layer, std::span<const int32_t> ids) {
    if (!recording_) return;
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t token = i / top_k_, rank = i % top_k_;
      pass_[(token * layers_ + layer) * top_k_ + rank] = static_cast<int16_t>(ids[i]);
    }
  }
  // The pass is complete; one that is not leaves no rows.
  void end() {
    if (recording_) ids_.insert(ids_.end(), pass_.begin(), pass_.end());
  }

  int layers() const { return layers_; }
  int top_k() const { return top_k_; }
  const std::vector<int16_t>& ids() const { return ids_; }  // [tokens, layers, top_k]

 private:
  int layers_;
  int top_k_;
  bool recording_ = false;
  std::vector<int16_t> pass_;
  std::vector<int16_t> ids_;
};

}  // namespace mference
