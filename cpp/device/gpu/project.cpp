// Products with one matrix, and with queries', keys' and values' at once.
#include <array>

#include "device/gpu/context.h"

namespace mference::gpu {

namespace {

struct Shape {
  bool tiles = false;
  bool many = false;
};

Shape shape_of(int rows, bool exact) {
  const bool tiles = rows >= kTileFrom && !exact;
  return {tiles, !tiles && rows > 1};
}

uint32_t token_blocks(int rows, const Shape& shape) {
  return blocks(rows, shape.tiles ? kTileTokens : shape.many ? kGemvTokens : 1);
}

Grid grid_of(uint32_t row_blocks, int rows, const Shape& shape) {
  return {{row_blocks, token_blocks(rows, shape), 1},
          shape.tiles ? uint32_t{kTileThreads} : uint32_t{kGemvSimdgroups * kLanes}};
}

}  // namespace

void encode(const Product& product, Context& context) {
  if (product.rows == 0) return;
  const Affine& w = product.weight;
  const Shape shape = shape_of(product.rows, product.exact);
  Constants constants;
  set(constants, format_of(w));
  constants.norm = product.norm ? 1 : 0;
  constants.many_tokens = shape.many ? 1 : 0;
  constants.tensor = context.tensor(shape.tiles);
  const ProjectArguments arguments{w.cols, w.rows, product.rows, product.eps, product.softcap};
  const View x = vectors(product.x, "the input of a product");
  context.launch(
      shape.tiles ? "project_tiles" : "project", constants,
      {x, product.norm ? product.norm : x, w.weight, w.scales, w.biases, product.out}, arguments,
      grid_of(blocks(w.rows, shape.tiles ? kTileRows : kGemvBlock), product.rows, shape));
}

void encode(const Project& op, Context& context) {
  encode(Product{op.x, {}, op.weight, op.out, op.rows}, context);
}

void encode(const NormQkv& op, Context& context) {
  if (op.rows == 0) return;
  struct Part {
    const Affine* matrix;
    View out;
  };
  std::array<Part, 3> parts{{{&op.q, op.q_out}, {&op.k, op.k_out}, {&op.v, op.v_out}}};
  const int count = op.v_out ? 3 : 2;
  const Shape shape = shape_of(op.rows, false);
  const int step = shape.tiles ? kTileRows : kGemvBlock;
  const View x = vectors(op.x, "NormQkv.x");
  // Matrices of one format share a launch.
  for (int first = 0; first < count;) {
    Format format = format_of(*parts[first].matrix);
    int end = first + 1;
    for (; end < count; ++end) {
      const Format next = format_of(*parts[end].matrix);
      if (next.bits != format.bits || next.group != format.group) break;
      format = both(format, next);
    }
    NormQkvArguments arguments{op.q.cols, {0, 0, 0}, op.rows, op.eps};
    uint32_t row_blocks = 0;
    std::array<Part, 3> bound;
    bound.fill(parts[first]);
    for (int i = first; i < end; ++i) {
      bound[i] = parts[i];
      arguments.rows[i] = parts[i].matrix->rows;
      row_blocks += blocks(parts[i].matrix->rows, step);
    }
    Constants constants;
    set(constants, format);
    constants.norm = 1;
    constants.many_tokens = shape.many ? 1 : 0;
    constants.tensor = context.tensor(shape.tiles);
    const Affine &q = *bound[0].matrix, &k = *bound[1].matrix, &v = *bound[2].matrix;
    context.launch(shape.tiles ? "norm_qkv_tiles" : "norm_qkv", constants,
                   {x, op.norm, q.weight, q.scales, q.biases, k.weight, k.scales, k.biases,
                    v.weight, v.scales, v.biases, bound[0].out, bound[1].out, bound[2].out},
                   arguments, grid_of(row_blocks, op.rows, shape));
    first = end;
  }
}

}  // namespace mference::gpu
