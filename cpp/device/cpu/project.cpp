#include <cstring>

#include "device/cpu/affine.h"
#include "device/cpu/execute.h"

namespace mference::cpu {

void execute(const NormQkv& op, Context& context) {
  const bool with_v = static_cast<bool>(op.v_out);
  const int count = with_v ? 3 : 2;
  Product products[3] = {
      {matrix(op.q, "NormQkv.q"), nullptr, size_t(op.q.rows)},
      {matrix(op.k, "NormQkv.k"), nullptr, size_t(op.k.rows)},
      {},
  };
  const size_t rows = op.rows;
  products[0].y = floats(op.q_out, rows * op.q.rows, "NormQkv.q_out");
  products[1].y = floats(op.k_out, rows * op.k.rows, "NormQkv.k_out");
  if (with_v) {
    products[2] = {matrix(op.v, "NormQkv.v"), floats(op.v_out, rows * op.v.rows, "NormQkv.v_out"),
                   size_t(op.v.rows)};
  }
  const int cols = op.q.cols;
  const float* x = floats(op.x, rows * cols, "NormQkv.x");
  const uint16_t* norm = halves(op.norm, cols, "NormQkv.norm");
  float* normed = reinterpret_cast<float*>(context.partials.reserve(rows * cols * sizeof(float)));
  const LaneKernels& lanes = lane_kernels(context.options.isa);
  context.pool.run(op.rows, size_t(cols) * 8, [&](int r) {
    lanes.norm(x + size_t(r) * cols, norm, cols, op.eps, normed + size_t(r) * cols);
  });
  // Products of one format share the prepared activations, and a parallel loop.
  for (int i = 0; i < count;) {
    int end = i + 1;
    while (end < count && same_format(products[i].matrix, products[end].matrix)) ++end;
    const Inputs inputs = prepare(context, context.activations, products[i].matrix, op.rows,
                                  [&](int r) { return normed + size_t(r) * cols; });
    multiply_all(context, products + i, end - i, inputs);
    i = end;
  }
}

void execute(const Project& op, Context& context) {
  const Matrix weight = matrix(op.weight, "Project.weight");
  const size_t rows = op.rows;
  const float* x = floats(op.x, rows * weight.cols, "Project.x");
  float* out = floats(op.out, rows * weight.rows, "Project.out");
  const Inputs inputs = prepare(context, context.activations, weight, op.rows,
                                [&](int r) { return x + size_t(r) * weight.cols; });
  const Product product{weight, out, size_t(weight.rows)};
  multiply_all(context, &product, 1, inputs);
}

void execute(const Zero& op, Context&) {
  float* out = floats(op.out, op.count, "Zero.out");
  std::memset(out, 0, size_t(op.count) * sizeof(float));
}

}  // namespace mference::cpu
