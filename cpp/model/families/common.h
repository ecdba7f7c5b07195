// What every family's forward pass has: tokens, a hidden state, a choice of experts, their outputs,
// and a head.
#pragma once

#include <memory>
#include <vector>

#include "model/forward.h"

namespace mference {

class CommonForward : public Forward {
 public:
  void routed(Stream& stream, int layer, Pass pass, const Tile& tile) override;
  void head(Stream& stream, Pass pass, Head head) override;
  View choice() const override { return ids_; }
  std::span<const int32_t> ids(Pass pass) const override;
  std::span<int32_t> pairs(Pass pass) override;
  int32_t token() const override;
  std::span<const float> logits() const override;

 protected:
  // The last norm, and the table and softcap of the logits.
  struct Output {
    View norm;
    Affine table;
    float softcap = 0.0f;
    float eps = 1e-6f;
  };

  explicit CommonForward(const ForwardInit& init);

  // A buffer of 4-byte elements: float32, or int32 for tokens, ids and pairs.
  View make(size_t count);
  void embed(Stream& stream, std::span<const int32_t> tokens, Pass pass, const Affine& table,
             float scale);
  // Starts the sums of a prefill's experts; in decode each expert's output has a row of its own.
  void start_routed(Stream& stream, Pass pass);
  // How many outputs of a token the tail adds up; 0 once they are summed.
  int parts(Pass pass) const { return pass.count > 1 ? 0 : arch_.top_k; }

  const Arch& arch_;
  const ExpertShape& expert_;
  Output output_;
  View x_;          // f32[rows, hidden]
  View routed_in_;  // f32[rows, hidden]: what the experts read
  View routed_;     // f32[rows, hidden], in decode f32[top_k, hidden]
  View ids_, weights_;

 private:
  Device& device_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  View tokens_, pairs_, scratch_, logits_, token_;
};

}  // namespace mference
