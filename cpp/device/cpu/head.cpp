// From the last hidden state to logits, a token, or candidates for sampling.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "device/cpu/affine.h"
#include "device/cpu/execute.h"

namespace mference::cpu {

namespace {

constexpr int kHeadRows = 512;  // of the table in one task
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// rms(x, norm), prepared for products with the table.
Inputs normed(Context& context, const View& x, const View& norm, const Matrix& table, float eps) {
  const float* from = floats(x, table.cols, "head x");
  const uint16_t* weight = halves(norm, table.cols, "head norm");
  std::vector<float> row(table.cols);
  lane_kernels(context.options.isa).norm(from, weight, table.cols, eps, row.data());
  return prepare(context, context.activations, table, 1, [&](int) { return row.data(); });
}

struct Best {
  float value = kLowest;
  int id = 0;
};

// The first of the largest values; NaN never wins.
Best best_of(const float* values, int first, int count) {
  Best best{kLowest, first};
  for (int i = 0; i < count; ++i) {
    if (values[i] > best.value) best = {values[i], first + i};
  }
  return best;
}

// Candidates are found in two steps: the count-th largest maximum of a stretch of kStretch logits
// bounds the count-th largest logit from below, so few values remain to be sorted.
constexpr int kStretch = 64;
constexpr int kChunk = 4096;

struct Stretches {
  std::vector<float> maxima;
  float max = kLowest;
  float log_sum = 0.0f;
};

Stretches survey(Context& context, const float* logits, int vocabulary) {
  Stretches s;
  const int stretches = (vocabulary + kStretch - 1) / kStretch;
  const int chunks = (vocabulary + kChunk - 1) / kChunk;
  constexpr int kPerChunk = kChunk / kStretch;
  s.maxima.resize(stretches);
  context.pool.run(chunks, kChunk * sizeof(float), [&](int chunk) {
    for (int i = chunk * kPerChunk; i < std::min((chunk + 1) * kPerChunk, stretches); ++i) {
      const int first = i * kStretch;
      s.maxima[i] = best_of(logits + first, first, std::min(kStretch, vocabulary - first)).value;
    }
  });
  s.max = *std::max_element(s.maxima.begin(), s.maxima.end());
  std::vector<float> sums(chunks);
  const LaneKernels& lanes = lane_kernels(context.options.isa);
  context.pool.run(chunks, kChunk * sizeof(float) * 4, [&](int chunk) {
    const int first = chunk * kChunk;
    sums[chunk] = lanes.sum_exp(logits + first, std::min(kChunk, vocabulary - first), s.max);
  });
  double total = 0.0;
  for (const float sum : sums) total += sum;
  s.log_sum = static_cast<float>(s.max + std::log(total));
  return s;
}

}  // namespace

void execute(const HeadArgmax& op, Context& context) {
  const Matrix table = matrix(op.table, "HeadArgmax.table");
  int32_t* token = integers(op.token, 1, "HeadArgmax.token");
  const Inputs inputs = normed(context, op.x, op.norm, table, op.eps);
  std::vector<Best> bests((table.rows + kHeadRows - 1) / kHeadRows);
  const size_t bytes = product_bytes(table, kHeadRows, 1);
  context.pool.run(static_cast<int>(bests.size()), bytes, [&](int task) {
    float z[kHeadRows];
    const int first = task * kHeadRows;
    const int last = std::min(first + kHeadRows, table.rows);
    multiply(context.options, table, inputs, first, last, z, kHeadRows);
    bests[task] = best_of(z, first, last - first);
  });
  Best best = bests[0];
  for (const Best& b : bests) {
    if (b.value > best.value) best = b;
  }
  require(best.value > kLowest, "HeadArgmax",
          "no logit is a number; the weights or the input are corrupt");
  *token = best.id;
}

void execute(const HeadLogits& op, Context& context) {
  const Matrix table = matrix(op.table, "HeadLogits.table");
  float* logits = floats(op.logits, table.rows, "HeadLogits.logits");
  const Inputs inputs = normed(context, op.x, op.norm, table, op.eps);
  const LaneKernels& lanes = lane_kernels(context.options.isa);
  const int tasks = (table.rows + kHeadRows - 1) / kHeadRows;
  context.pool.run(tasks, product_bytes(table, kHeadRows, 1), [&](int task) {
    const int first = task * kHeadRows;
    const int last = std::min(first + kHeadRows, table.rows);
    multiply(context.options, table, inputs, first, last, logits + first, table.rows);
    if (op.softcap > 0.0f) lanes.softcap(logits + first, last - first, op.softcap);
  });
}

void execute(const TopCandidates& op, Context& context) {
  const int vocabulary = op.vocabulary, count = op.count;
  const float* logits = floats(op.logits, vocabulary, "TopCandidates.logits");
  int32_t* ids = integers(op.ids, count, "TopCandidates.ids");
  float* values = floats(op.values, count, "TopCandidates.values");
  float* log_sum = floats(op.log_sum, 1, "TopCandidates.log_sum");
  const Stretches s = survey(context, logits, vocabulary);
  float threshold = kLowest;
  if (count <= static_cast<int>(s.maxima.size())) {
    std::vector<float> maxima = s.maxima;
    std::nth_element(maxima.begin(), maxima.begin() + (count - 1), maxima.end(), std::greater<>());
    threshold = maxima[count - 1];
  }
  std::vector<int32_t> found;
  for (size_t i = 0; i < s.maxima.size(); ++i) {
    if (s.maxima[i] < threshold) continue;
    const int first = static_cast<int>(i) * kStretch;
    for (int id = first; id < std::min(first + kStretch, vocabulary); ++id) {
      if (logits[id] >= threshold) found.push_back(id);
    }
  }
  require(static_cast<int>(found.size()) >= count, "TopCandidates.logits",
          "fewer numbers than candidates; the weights or the input are corrupt");
  std::partial_sort(found.begin(), found.begin() + count, found.end(), [&](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  });
  for (int i = 0; i < count; ++i) {
    ids[i] = found[i];
    values[i] = logits[found[i]];
  }
  *log_sum = s.log_sum;
}

}  // namespace mference::cpu
