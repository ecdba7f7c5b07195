// The shared expert and the routed ones: down(act(gate x) * (up x)).
#include <algorithm>
#include <vector>

#include "base/numeric.h"
#include "device/check.h"
#include "device/cpu/affine.h"
#include "device/cpu/execute.h"

namespace mference::cpu {

namespace {

// A task's products land here before they are combined: kInputs rows of activations by kRows rows
// of weights, or one row of activations by all of it.
constexpr int kRows = 32;
constexpr int kInputs = 64;

// Calls body(first input, inputs, first row, rows) for pieces whose results fit the local buffer.
template <class Body>
void pieces(int inputs, int first, int last, const Body& body) {
  const int step = inputs == 1 ? kRows * kInputs : kRows;
  for (int r = first; r < last; r += step) {
    for (int t = 0; t < inputs; t += kInputs) {
      body(t, std::min(kInputs, inputs - t), r, std::min(step, last - r));
    }
  }
}

Inputs some(const Inputs& x, int first, int count) {
  Inputs part = x.from(first);
  part.rows = count;
  return part;
}

// h[t * width + r] = act(gate row r of x[t]) * (up row r of x[t]) for r in [first, last).
void gated(const Context& context, Activation activation, const Matrix& gate, const Inputs& gate_x,
           const Matrix& up, const Inputs& up_x, int first, int last, float* h) {
  const LaneKernels& lanes = lane_kernels(context.options.isa);
  const size_t width = gate.rows;
  pieces(gate_x.rows, first, last, [&](int t, int inputs, int r, int rows) {
    alignas(64) float raised[kRows * kInputs];
    float* out = h + t * width + r;
    multiply(context.options, gate, some(gate_x, t, inputs), r, r + rows, out, width);
    multiply(context.options, up, some(up_x, t, inputs), r, r + rows, raised, rows);
    for (int i = 0; i < inputs; ++i)
      lanes.gate(activation, out + i * width, raised + i * rows, rows);
  });
}

struct Expert {
  Matrix gate, up, down;
  int first = 0;  // of its pairs, in the operation's list
  int pairs = 0;
  int start = 0;  // of its pairs, in the tile
};

Matrix part(const View& blob, const ExpertShape::Part& part, int rows, int cols) {
  return matrix(expert_matrix(blob, part, rows, cols), "RoutedExperts.experts");
}

// The expert with the blob that its slot holds, if there is a guard.
RoutedExpert placed(const RoutedExperts& op, RoutedExpert expert) {
  if (!op.guard) return expert;
  const size_t stride = op.guard.stride;
  const int slot = integers(op.guard.slots, op.k, "RoutedExperts.guard")[expert.first];
  require(slot >= 0 && size_t(slot) < op.guard.slab.size / stride, "RoutedExperts.guard",
          "a slot is outside the slab");
  expert.blob = op.guard.slab.at(slot * stride, expert.blob.size);
  return expert;
}

class Routed {
 public:
  Routed(const RoutedExperts& op, Context& context) : op_(op), context_(context) {
    const ExpertShape& shape = op.shape;
    rows_ = op.rows;
    x_ = floats(op.x, size_t(rows_) * shape.hidden, "RoutedExperts.x");
    pairs_ = integers(op.pairs, 0, "RoutedExperts.pairs");
    for (int e = 0; e < op.count; ++e) add(placed(op, op.experts[e]));
    h_ = floats(op.scratch, tile_pairs_.size() * shape.width, "RoutedExperts.scratch");
    const size_t pairs = size_t(rows_) * op.k;
    if (op.accumulate) weights_ = floats(op.weights, pairs, "RoutedExperts.weights");
    const size_t out_rows = op.accumulate ? rows_ : pairs;
    out_ = floats(op.out, out_rows * shape.hidden, "RoutedExperts.out");
  }

  void run() {
    if (tile_pairs_.empty()) return;
    raise();
    lower();
  }

 private:
  void add(const RoutedExpert& routed) {
    const ExpertShape& s = op_.shape;
    Expert expert;
    expert.gate = part(routed.blob, s.gate, s.width, s.hidden);
    expert.up = part(routed.blob, s.up, s.width, s.hidden);
    expert.down = part(routed.blob, s.down, s.hidden, s.width);
    expert.first = routed.first;
    expert.pairs = routed.last - routed.first;
    expert.start = static_cast<int>(tile_pairs_.size());
    for (int i = routed.first; i < routed.last; ++i) {
      require(pairs_[i] >= 0 && pairs_[i] < rows_ * op_.k, "RoutedExperts.pairs",
              "a pair is outside the rows");
      tile_pairs_.push_back(pairs_[i]);
    }
    experts_.push_back(expert);
  }

  // The activations of the tile's pairs. A single row serves all pairs through a stride of zero.
  Inputs gather(Scratch& scratch, const Matrix& m) const {
    const bool single = rows_ == 1;
    Inputs x = prepare(context_, scratch, m, single ? 1 : static_cast<int>(tile_pairs_.size()),
                       [&](int i) { return x_ + size_t(tile_pairs_[i] / op_.k) * m.cols; });
    return x;
  }

  Inputs of(const Inputs& x, const Expert& expert) const {
    if (rows_ > 1) return some(x, expert.start, expert.pairs);
    Inputs same = x;
    same.rows = expert.pairs;
    same.code_stride = same.group_stride = same.value_stride = 0;
    return same;
  }

  void raise() {
    const Matrix& gate = experts_[0].gate;
    const Matrix& up = experts_[0].up;
    const Inputs gate_x = gather(context_.activations, gate);
    const Inputs up_x = same_format(gate, up) ? gate_x : gather(context_.partials, up);
    const int step = rows_per_task(gate, most_pairs());
    const int chunks = (op_.shape.width + step - 1) / step;
    const size_t bytes = 2 * product_bytes(gate, std::min(step, op_.shape.width), most_pairs());
    context_.pool.run(op_.count * chunks, bytes, [&](int task) {
      const Expert& e = experts_[task / chunks];
      if (e.pairs == 0) return;
      const int first = task % chunks * step;
      gated(context_, op_.shape.activation, e.gate, of(gate_x, e), e.up, of(up_x, e), first,
            std::min(first + step, op_.shape.width), h_ + size_t(e.start) * op_.shape.width);
    });
  }

  void lower() {
    const int width = op_.shape.width, hidden = op_.shape.hidden;
    const Inputs h = prepare(context_, context_.activations, experts_[0].down,
                             static_cast<int>(tile_pairs_.size()),
                             [&](int i) { return h_ + size_t(i) * width; });
    if (op_.accumulate) {
      // Experts that share a row add to it in order, so one task takes them all.
      const int chunks = (hidden + kRows - 1) / kRows;
      size_t bytes = 0;
      for (const Expert& e : experts_) bytes += product_bytes(e.down, kRows, e.pairs);
      context_.pool.run(chunks, bytes, [&](int chunk) {
        const int first = chunk * kRows;
        for (const Expert& e : experts_) lower(e, h, first, std::min(first + kRows, hidden));
      });
      return;
    }
    const int step = rows_per_task(experts_[0].down, most_pairs());
    const int chunks = (hidden + step - 1) / step;
    const size_t bytes = product_bytes(experts_[0].down, std::min(step, hidden), most_pairs());
    context_.pool.run(op_.count * chunks, bytes, [&](int task) {
      const int first = task % chunks * step;
      lower(experts_[task / chunks], h, first, std::min(first + step, hidden));
    });
  }

  void lower(const Expert& e, const Inputs& h, int first, int last) const {
    const size_t hidden = op_.shape.hidden;
    pieces(e.pairs, first, last, [&](int t, int inputs, int r, int rows) {
      alignas(64) float y[kRows * kInputs];
      multiply(context_.options, e.down, some(h, e.start + t, inputs), r, r + rows, y, rows);
      for (int i = 0; i < inputs; ++i) {
        const int pair = tile_pairs_[e.start + t + i];
        if (op_.accumulate) {
          float* out = out_ + pair / op_.k * hidden + r;
          for (int j = 0; j < rows; ++j) out[j] += weights_[pair] * y[i * rows + j];
        } else {
          std::copy_n(y + i * rows, rows, out_ + pair * hidden + r);
        }
      }
    });
  }

  int most_pairs() const {
    int most = 1;
    for (const Expert& e : experts_) most = std::max(most, e.pairs);
    return most;
  }

  const RoutedExperts& op_;
  Context& context_;
  std::vector<Expert> experts_;
  std::vector<int32_t> tile_pairs_;
  const float* x_ = nullptr;
  const int32_t* pairs_ = nullptr;
  const float* weights_ = nullptr;
  float* h_ = nullptr;
  float* out_ = nullptr;
  int rows_ = 0;
};

// out *= sigmoid(scalar_gate x).
void open(const SharedExpert& op, const float* x, float* out, Context& context) {
  const Matrix gate = matrix(op.scalar_gate, "SharedExpert.scalar_gate");
  const int hidden = op.down.rows;
  float* logits =
      reinterpret_cast<float*>(context.partials.reserve(size_t(op.rows) * sizeof(float)));
  const Inputs inputs = prepare(context, context.activations, gate, op.rows,
                                [&](int r) { return x + size_t(r) * gate.cols; });
  const Product product{gate, logits, 1};
  multiply_all(context, &product, 1, inputs);
  context.pool.run(op.rows, size_t(hidden) * 8, [&](int r) {
    const float share = sigmoid(logits[r]);
    float* row = out + size_t(r) * hidden;
    for (int i = 0; i < hidden; ++i) row[i] *= share;
  });
}

}  // namespace

void execute(const SharedExpert& op, Context& context) {
  const Matrix gate = matrix(op.gate, "SharedExpert.gate");
  const Matrix up = matrix(op.up, "SharedExpert.up");
  const Matrix down = matrix(op.down, "SharedExpert.down");
  const size_t rows = op.rows;
  const float* x = floats(op.x, rows * gate.cols, "SharedExpert.x");
  float* h = floats(op.scratch, rows * gate.rows, "SharedExpert.scratch");
  float* out = floats(op.out, rows * down.rows, "SharedExpert.out");
  const auto row = [&](int r) { return x + size_t(r) * gate.cols; };
  const Inputs gate_x = prepare(context, context.activations, gate, op.rows, row);
  const Inputs up_x =
      same_format(gate, up) ? gate_x : prepare(context, context.partials, up, op.rows, row);
  const int step = rows_per_task(gate, op.rows);
  const size_t bytes = 2 * product_bytes(gate, std::min(step, gate.rows), op.rows);
  context.pool.run((gate.rows + step - 1) / step, bytes, [&](int task) {
    gated(context, op.activation, gate, gate_x, up, up_x, task * step,
          std::min((task + 1) * step, gate.rows), h);
  });
  const Inputs inputs = prepare(context, context.activations, down, op.rows,
                                [&](int r) { return h + size_t(r) * down.cols; });
  const Product product{down, out, size_t(down.rows)};
  multiply_all(context, &product, 1, inputs);
  if (op.scalar_gate.rows > 0) open(op, x, out, context);
}

void execute(const LookUpSlots& op, Context&) {
  const int32_t* ids = integers(op.ids, op.k, "LookUpSlots.ids");
  const auto* table =
      reinterpret_cast<const int16_t*>(halves(op.table, op.experts, "LookUpSlots.table"));
  int32_t* slots = integers(op.slots, op.k, "LookUpSlots.slots");
  int32_t hit = 1;
  for (int j = 0; j < op.k; ++j) {
    slots[j] = ids[j] >= 0 && ids[j] < op.experts ? table[ids[j]] : -1;
    if (slots[j] < 0) hit = 0;
  }
  *integers(op.hit, 1, "LookUpSlots.hit") = hit;
}

void execute(const RoutedExperts& op, Context& context) {
  if (op.guard && *integers(op.guard.hit, 1, "RoutedExperts.guard") != 1) return;
  Routed(op, context).run();
}

}  // namespace mference::cpu
