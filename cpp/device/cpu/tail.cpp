#include <algorithm>
#include <numeric>
#include <vector>

#include "base/numeric.h"
#include "device/cpu/execute.h"
#include "device/cpu/lanes.h"
#include "device/operands.h"

namespace mference::cpu {

namespace {

// out = sum over the parts in ascending expert id, each product rounded before it is added: what
// accumulating tile after tile gives.
void combine(const float* routed, const int32_t* ids, const float* weights, int parts, int hidden,
             float* out) {
  std::vector<int> order(parts);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return ids[a] < ids[b]; });
  std::fill_n(out, hidden, 0.0f);
  for (const int j : order) {
    const float* part = routed + size_t(j) * hidden;
    for (int i = 0; i < hidden; ++i) out[i] += weights[j] * part[i];
  }
}

// The routed outputs of a tail's rows: sums already, or parts to be summed.
class Outputs {
 public:
  // Of an operation that has been checked.
  template <class Tail>
  Outputs(const Tail& op, const char* field) : parts_(op.parts), hidden_(op.hidden) {
    const size_t rows = op.rows, chosen = rows * op.parts;
    routed_ = floats(op.routed, rows * row_size(), field);
    if (parts_ == 0) return;
    ids_ = integers(op.ids, chosen, field);
    weights_ = floats(op.weights, chosen, field);
  }

  // The row's sum; if it has to be made, in `own`.
  const float* sum(int row, float* own) const {
    const float* routed = routed_ + row * row_size();
    if (parts_ == 0) return routed;
    const size_t first = size_t(row) * parts_;
    combine(routed, ids_ + first, weights_ + first, parts_, hidden_, own);
    return own;
  }

 private:
  size_t row_size() const { return size_t(std::max(parts_, 1)) * hidden_; }

  int parts_;
  int hidden_;
  const float* routed_ = nullptr;
  const int32_t* ids_ = nullptr;
  const float* weights_ = nullptr;
};

}  // namespace

void execute(const LayerTail& op, Context& context) {
  const size_t rows = op.rows, hidden = op.hidden, parts = op.parts;
  float* x = floats(op.x, rows * hidden, "LayerTail.x");
  const float* shared = floats(op.shared, rows * hidden, "LayerTail.shared");
  const Outputs routed(op, "LayerTail.routed");
  const uint16_t* post_shared = halves(op.post_shared, hidden, "LayerTail.post_shared");
  const uint16_t* post_routed = halves(op.post_routed, hidden, "LayerTail.post_routed");
  const uint16_t* post_layer = halves(op.post_layer, hidden, "LayerTail.post_layer");
  const float scalar = bf16_to_float(*halves(op.layer_scalar, 1, "LayerTail.layer_scalar"));
  const LaneKernels& lanes = lane_kernels(context.options.isa);
  float* memory =
      reinterpret_cast<float*>(context.partials.reserve(2 * rows * hidden * sizeof(float)));
  context.pool.run(op.rows, hidden * (32 + 4 * parts), [&](int r) {
    float* a = memory + 2 * r * hidden;
    float* b = a + hidden;
    lanes.norm(routed.sum(r, b), post_routed, op.hidden, op.eps, b);
    lanes.norm(shared + r * hidden, post_shared, op.hidden, op.eps, a);
    for (size_t i = 0; i < hidden; ++i) a[i] += b[i];
    lanes.norm(a, post_layer, op.hidden, op.eps, a);
    float* row = x + r * hidden;
    for (size_t i = 0; i < hidden; ++i) row[i] = (row[i] + a[i]) * scalar;
  });
}

void execute(const ResidualTail& op, Context& context) {
  const size_t rows = op.rows, hidden = op.hidden, parts = op.parts;
  float* x = floats(op.x, rows * hidden, "ResidualTail.x");
  const float* shared = floats(op.shared, rows * hidden, "ResidualTail.shared");
  const Outputs routed(op, "ResidualTail.routed");
  float* memory = reinterpret_cast<float*>(context.partials.reserve(rows * hidden * sizeof(float)));
  context.pool.run(op.rows, hidden * (16 + 4 * parts), [&](int r) {
    const float* sum = routed.sum(r, memory + r * hidden);
    const float* beside = shared + r * hidden;
    float* row = x + r * hidden;
    for (size_t i = 0; i < hidden; ++i) row[i] += sum[i] + beside[i];
  });
}

}  // namespace mference::cpu
