// Products with one matrix, and with several that share a norm.
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
  constants.gated = product.gates ? 1 : 0;
  const ProjectArguments arguments{w.cols, w.rows, product.rows, product.eps, product.softcap};
  const View x = vectors(product.x, "the input of a product");
  context.launch(
      shape.tiles ? "project_tiles" : "project", constants,
      {x, product.norm ? product.norm : x, w.weight, w.scales, w.biases, product.out,
       product.gates ? product.gates : x},
      arguments,
      grid_of(blocks(w.rows, shape.tiles ? kTileRows : kGemvBlock), product.rows, shape));
}

void encode(const Project& op, Context& context) {
  encode(Product{op.x, {}, op.weight, op.out, op.rows}, context);
}

void encode(const NormProject& op, Context& context) {
  static_assert(int{kNormParts} == NormProject::kMaxParts);
  if (op.rows == 0) return;
  const Shape shape = shape_of(op.rows, false);
  const int step = shape.tiles ? kTileRows : kGemvBlock;
  const View x = vectors(op.x, "NormProject.x");
  // Matrices of one format share a launch.
  std::array<bool, kNormParts> done{};
  for (int first = 0; first < op.count; ++first) {
    if (done[first]) continue;
    Format format = format_of(op.parts[first].matrix);
    NormProjectArguments arguments{op.parts[first].matrix.cols, {}, op.rows, op.eps};
    std::array<NormProject::Part, kNormParts> bound;
    bound.fill(op.parts[first]);
    int count = 0;
    uint32_t row_blocks = 0;
    for (int i = first; i < op.count; ++i) {
      const NormProject::Part& part = op.parts[i];
      const Format own = format_of(part.matrix);
      if (done[i] || own.bits != format.bits || own.group != format.group) continue;
      format = both(format, own);
      done[i] = true;
      bound[count] = part;
      arguments.rows[count++] = part.matrix.rows;
      row_blocks += blocks(part.matrix.rows, step);
    }
    Constants constants;
    set(constants, format);
    constants.norm = 1;
    constants.many_tokens = shape.many ? 1 : 0;
    constants.tensor = context.tensor(shape.tiles);
    const Affine &a = bound[0].matrix, &b = bound[1].matrix, &c = bound[2].matrix,
                 &d = bound[3].matrix;
    context.launch(shape.tiles ? "norm_project_tiles" : "norm_project", constants,
                   {x, op.norm, a.weight, a.scales, a.biases, b.weight, b.scales, b.biases,
                    c.weight, c.scales, c.biases, d.weight, d.scales, d.biases, bound[0].out,
                    bound[1].out, bound[2].out, bound[3].out},
                   arguments, grid_of(row_blocks, op.rows, shape));
  }
}

}  // namespace mference::gpu
