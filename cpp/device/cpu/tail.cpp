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

}  // namespace

void execute(const LayerTail& op, Context& context) {
  const size_t rows = op.rows, hidden = op.hidden, parts = op.parts;
  float* x = floats(op.x, rows * hidden, "LayerTail.x");
  const float* shared = floats(op.shared, rows * hidden, "LayerTail.shared");
  const size_t routed_rows = std::max<size_t>(parts, 1);
  const float* routed = floats(op.routed, rows * routed_rows * hidden, "LayerTail.routed");
  const int32_t* ids = parts > 0 ? integers(op.ids, rows * parts, "LayerTail.ids") : nullptr;
  const float* weights =
      parts > 0 ? floats(op.weights, rows * parts, "LayerTail.weights") : nullptr;
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
    const float* own = routed + r * routed_rows * hidden;
    if (parts > 0) {
      combine(own, ids + r * parts, weights + r * parts, op.parts, op.hidden, b);
      own = b;
    }
    lanes.norm(own, post_routed, op.hidden, op.eps, b);
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
  const size_t routed_rows = std::max<size_t>(parts, 1);
  const float* routed = floats(op.routed, rows * routed_rows * hidden, "ResidualTail.routed");
  const int32_t* ids = parts > 0 ? integers(op.ids, rows * parts, "ResidualTail.ids") : nullptr;
  const float* weights =
      parts > 0 ? floats(op.weights, rows * parts, "ResidualTail.weights") : nullptr;
  float* memory = reinterpret_cast<float*>(context.partials.reserve(rows * hidden * sizeof(float)));
  context.pool.run(op.rows, hidden * (16 + 4 * parts), [&](int r) {
    const float* sum = routed + r * routed_rows * hidden;
    if (parts > 0) {
      float* own = memory + r * hidden;
      combine(sum, ids + r * parts, weights + r * parts, op.parts, op.hidden, own);
      sum = own;
    }
    const float* beside = shared + r * hidden;
    float* row = x + r * hidden;
    for (size_t i = 0; i < hidden; ++i) row[i] += sum[i] + beside[i];
  });
}

}  // namespace mference::cpu
