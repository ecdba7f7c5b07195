// Queries, keys and values: preparing them, caching them, attending to them.
//
// Attention splits positions into blocks of 256 at absolute multiples of 256. Each block gives an
// average of its own, and the averages are merged in ascending order. Which thread computes a
// block, which rows share it and where the ring holds it changes nothing in that arithmetic.
#include <algorithm>
#include <cstring>
#include <limits>

#include "device/check.h"
#include "device/cpu/execute.h"
#include "device/cpu/lanes.h"
#include "device/operands.h"

namespace mference::cpu {

namespace {

struct Cache {
  std::byte* keys;
  std::byte* values;
  size_t element;
  size_t row;  // bytes
};

Cache open_cache(const KvCache& cache, const char* field) {
  const size_t count = size_t(cache.capacity) * cache.heads * cache.dim;
  Cache open{};
  if (cache.type == KvType::kFloat16) {
    open.element = sizeof(uint16_t);
    open.keys = reinterpret_cast<std::byte*>(halves(cache.keys, count, field));
    open.values = reinterpret_cast<std::byte*>(halves(cache.values, count, field));
  } else {
    open.element = sizeof(float);
    open.keys = reinterpret_cast<std::byte*>(floats(cache.keys, count, field));
    open.values = reinterpret_cast<std::byte*>(floats(cache.values, count, field));
  }
  open.row = size_t(cache.heads) * cache.dim * open.element;
  return open;
}

void rotate(float* x, int distance, int rotated, const float* rope) {
  float* high = x + distance;
  for (int i = 0; i < rotated; ++i) {
    const float cos = rope[2 * i], sin = rope[2 * i + 1];
    const float lo = x[i], hi = high[i];
    x[i] = lo * cos - hi * sin;
    high[i] = lo * sin + hi * cos;
  }
}

constexpr float kNone = -std::numeric_limits<float>::infinity();

// One operation's queries, cut into tiles: some rows of all heads that read one KV head.
class Attend {
 public:
  Attend(const Attention& op, Context& context)
      : op_(op),
        context_(context),
        lanes_(lane_kernels(context.options.isa)),
        cache_(open_cache(op.cache, "Attention.cache")) {
    shared_ = op.heads / op.cache.heads;
    require(shared_ <= AttentionTile::kQueries, "Attention",
            "too many query heads for one KV head");
    const size_t count = size_t(op.rows) * op.heads * op.cache.dim;
    q_ = floats(op.q, count, "Attention.q");
    out_ = floats(op.out, count, "Attention.out");
    rows_per_tile_ = AttentionTile::kQueries / shared_;
  }

  void run() {
    if (op_.rows <= rows_per_tile_) {
      run_blocks();
    } else {
      run_tiles();
    }
  }

 private:
  AttentionTile tile(int head, int row, int rows) const {
    AttentionTile t;
    t.count = rows * shared_;
    t.dim = op_.cache.dim;
    t.scale = op_.scale;
    t.half = op_.cache.type == KvType::kFloat16;
    t.stride = cache_.row;
    t.capacity = op_.cache.capacity;
    const size_t offset = size_t(head) * t.dim * cache_.element;
    t.keys = cache_.keys + offset;
    t.values = cache_.values + offset;
    for (int i = 0; i < t.count; ++i) {
      const int r = row + i / shared_;
      t.query[i] = q_ + element(r, head * shared_ + i % shared_);
      t.first[i] = first_position(op_, r);
      t.last[i] = op_.position + r + 1;
    }
    return t;
  }

  size_t element(int row, int head) const {
    return (size_t(row) * op_.heads + head) * op_.cache.dim;
  }

  void finish(Average& total, float* out) const {
    const float inverse = 1.0f / total.sum;
    for (int d = 0; d < op_.cache.dim; ++d) out[d] = total.out[d] * inverse;
  }

  // Few rows: every block of positions of every KV head is a task, then every head merges.
  void run_blocks() {
    constexpr int kBlock = AttentionTile::kBlock;
    const int begin = first_position(op_, 0);
    const int end = op_.position + op_.rows;
    const int first_block = begin / kBlock;
    const int blocks = (end + kBlock - 1) / kBlock - first_block;
    const int heads = op_.cache.heads;
    const int queries = op_.rows * shared_;
    const size_t count = size_t(heads) * blocks * queries;
    const int dim = op_.cache.dim;
    std::byte* memory = context_.partials.reserve(count * (dim * sizeof(float) + sizeof(Average)));
    float* outs = reinterpret_cast<float*>(memory);
    Average* parts = reinterpret_cast<Average*>(memory + count * dim * sizeof(float));
    for (size_t i = 0; i < count; ++i) parts[i] = {kNone, 0.0f, outs + i * dim};
    const size_t row_bytes = 2 * size_t(dim) * cache_.element;
    const size_t block_bytes = std::min(end - begin, kBlock) * row_bytes * (1 + queries / 4);
    context_.pool.run(heads * blocks, block_bytes, [&](int task) {
      const int block = first_block + task % blocks;
      lanes_.attend(tile(task / blocks, 0, op_.rows), std::max(begin, block * kBlock),
                    std::min(end, (block + 1) * kBlock), parts + size_t(task) * queries);
    });
    context_.pool.run(heads, size_t(blocks) * queries * dim * sizeof(float), [&](int head) {
      for (int q = 0; q < queries; ++q) {
        Average* part = parts + size_t(head) * blocks * queries + q;
        Average& total = *part;
        for (int b = 1; b < blocks; ++b) lanes_.merge(part[size_t(b) * queries], dim, total);
        finish(total, out_ + element(q / shared_, head * shared_ + q % shared_));
      }
    });
  }

  // Many rows: every tile is a task that merges block after block.
  void run_tiles() {
    const int heads = op_.cache.heads;
    const int tiles = (op_.rows + rows_per_tile_ - 1) / rows_per_tile_;
    const size_t floats_per_task = 2 * size_t(AttentionTile::kQueries) * op_.cache.dim;
    float* memory = reinterpret_cast<float*>(
        context_.partials.reserve(size_t(heads) * tiles * floats_per_task * sizeof(float)));
    const size_t span = op_.position + op_.rows - first_position(op_, 0);
    const size_t tile_bytes = span * op_.cache.dim * AttentionTile::kQueries;
    context_.pool.run(heads * tiles, tile_bytes, [&](int task) {
      const int row = task / heads * rows_per_tile_;
      run_tile(task % heads, row, std::min(rows_per_tile_, op_.rows - row),
               memory + task * floats_per_task);
    });
  }

  void run_tile(int head, int row, int rows, float* memory) const {
    constexpr int kBlock = AttentionTile::kBlock;
    const AttentionTile t = tile(head, row, rows);
    Average part[AttentionTile::kQueries], total[AttentionTile::kQueries];
    for (int q = 0; q < t.count; ++q) {
      part[q] = {kNone, 0.0f, memory + size_t(q) * t.dim};
      total[q] = {kNone, 0.0f, memory + size_t(AttentionTile::kQueries + q) * t.dim};
    }
    const int begin = t.first[0], end = t.last[t.count - 1];
    for (int block = begin / kBlock; block * kBlock < end; ++block) {
      lanes_.attend(t, std::max(begin, block * kBlock), std::min(end, (block + 1) * kBlock), part);
      for (int q = 0; q < t.count; ++q) lanes_.merge(part[q], t.dim, total[q]);
    }
    for (int q = 0; q < t.count; ++q) {
      finish(total[q], out_ + element(row + q / shared_, head * shared_ + q % shared_));
    }
  }

  const Attention& op_;
  Context& context_;
  const LaneKernels& lanes_;
  Cache cache_;
  const float* q_ = nullptr;
  float* out_ = nullptr;
  int shared_ = 1;
  int rows_per_tile_ = 1;
};

}  // namespace

void execute(const QkvEpilogue& op, Context& context) {
  const Cache cache = open_cache(op.cache, "QkvEpilogue.cache");
  const int dim = op.cache.dim;
  const size_t rows = op.rows;
  const size_t kv_width = size_t(op.cache.heads) * dim;
  const float* q = floats(op.q, rows * op.heads * op.q_width, "QkvEpilogue.q");
  float* q_out = floats(op.q_out, rows * op.heads * dim, "QkvEpilogue.q_out");
  const float* k = floats(op.k, rows * kv_width, "QkvEpilogue.k");
  const float* v = floats(op.v, rows * kv_width, "QkvEpilogue.v");
  const uint16_t* q_norm = halves(op.q_norm, dim, "QkvEpilogue.q_norm");
  const uint16_t* k_norm = halves(op.k_norm, dim, "QkvEpilogue.k_norm");
  const float* rope = floats(op.rope, rows * op.rotated * 2, "QkvEpilogue.rope");
  const LaneKernels& lanes = lane_kernels(context.options.isa);

  const auto write = [&](const float* from, std::byte* to) {
    if (op.cache.type == KvType::kFloat16) {
      lanes.narrow(from, dim, reinterpret_cast<uint16_t*>(to));
    } else {
      std::memcpy(to, from, dim * sizeof(float));
    }
  };
  const size_t row_bytes = 12 * size_t(op.heads + 2 * op.cache.heads) * dim;
  context.pool.run(op.rows, row_bytes, [&](int r) {
    const float* angles = rope + size_t(r) * op.rotated * 2;
    for (int h = 0; h < op.heads; ++h) {
      const size_t index = size_t(r) * op.heads + h;
      float* head = q_out + index * dim;
      lanes.norm(q + index * op.q_width, q_norm, dim, op.eps, head);
      rotate(head, op.distance, op.rotated, angles);
    }
    const size_t slot = size_t(op.position + r) % op.cache.capacity * cache.row;
    for (int h = 0; h < op.cache.heads; ++h) {
      float head[AttentionTile::kMaxDim];
      const size_t from = r * kv_width + size_t(h) * dim;
      const size_t to = slot + size_t(h) * dim * cache.element;
      lanes.norm(k + from, k_norm, dim, op.eps, head);
      rotate(head, op.distance, op.rotated, angles);
      write(head, cache.keys + to);
      if (op.norm_values) {
        lanes.norm(v + from, nullptr, dim, op.eps, head);
        write(head, cache.values + to);
      } else {
        write(v + from, cache.values + to);
      }
    }
  });
}

void execute(const GateHeads& op, Context& context) {
  const size_t heads = size_t(op.rows) * op.heads;
  float* x = floats(op.x, heads * op.dim, "GateHeads.x");
  const float* gate = floats(op.gate, heads * op.width, "GateHeads.gate") + (op.width - op.dim);
  const LaneKernels& lanes = lane_kernels(context.options.isa);
  context.pool.run(op.rows, size_t(op.heads) * op.dim * 32, [&](int r) {
    for (int h = 0; h < op.heads; ++h) {
      const size_t index = size_t(r) * op.heads + h;
      lanes.open_gate(x + index * op.dim, gate + index * op.width, op.dim);
    }
  });
}

void execute(const Attention& op, Context& context) {
  if (op.rows > 0) Attend(op, context).run();
}

}  // namespace mference::cpu
