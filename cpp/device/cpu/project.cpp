#include <array>
#include <cstring>

#include "device/cpu/affine.h"
#include "device/cpu/execute.h"

namespace mference::cpu {

void execute(const NormProject& op, Context& context) {
  const size_t rows = op.rows;
  std::array<Product, NormProject::kMaxParts> products;
  for (int i = 0; i < op.count; ++i) {
    const Matrix m = matrix(op.parts[i].matrix, "NormProject.parts");
    products[i] = {m, floats(op.parts[i].out, rows * m.rows, "NormProject.parts"), size_t(m.rows)};
  }
  const int cols = products[0].matrix.cols;
  const float* x = floats(op.x, rows * cols, "NormProject.x");
  const uint16_t* norm = halves(op.norm, cols, "NormProject.norm");
  float* normed = reinterpret_cast<float*>(context.partials.reserve(rows * cols * sizeof(float)));
  const LaneKernels& lanes = lane_kernels(context.options.isa);
  context.pool.run(op.rows, size_t(cols) * 8, [&](int r) {
    lanes.norm(x + size_t(r) * cols, norm, cols, op.eps, normed + size_t(r) * cols);
  });
  // Products of one format share the prepared activations, and a parallel loop.
  for (int i = 0; i < op.count;) {
    int end = i + 1;
    while (end < op.count && same_format(products[i].matrix, products[end].matrix)) ++end;
    const Inputs inputs = prepare(context, context.activations, products[i].matrix, op.rows,
                                  [&](int r) { return normed + size_t(r) * cols; });
    multiply_all(context, products.data() + i, end - i, inputs);
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
