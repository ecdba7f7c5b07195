// Elementwise and reducing kernels on sixteen float32 lanes.
//
// One source, lanes.inl, is compiled once for each instruction set. It uses additions,
// multiplications, divisions and square roots only, each rounded on its own, in an order that does
// not depend on the width of the registers: every instruction set gives the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cpu/device.h"
#include "device/ops.h"

namespace mference::cpu {

// Where the int16 code of column j lies within its row. Products are exact sums of integers, so a
// kernel may ask for the order in which its instructions unpack weights.
enum class Layout {
  kNatural,
  // 4 bits, group 64, in blocks of two groups: code j of group g goes to block g / 2, plane j mod 4
  // (32 codes each), half g mod 2, pair j / 8, member j / 4 mod 2.
  kNibbles,
  // 8 bits, group 64: each group's even columns, then its odd ones.
  kBytes,
};

// Queries that read one head of a KV cache together. Query i has the positions
// [first[i], last[i]).
struct AttentionTile {
  static constexpr int kQueries = 32;
  static constexpr int kBlock = 256;
  static constexpr int kMaxDim = 1024;  // and a multiple of sixteen
  const float* query[kQueries];
  int first[kQueries];
  int last[kQueries];
  int count = 0;
  int dim = 0;
  float scale = 1.0f;
  const std::byte* keys = nullptr;  // the head's part of ring row 0
  const std::byte* values = nullptr;
  bool half = true;   // float16 elements, else float32
  size_t stride = 0;  // bytes from one ring row to the next
  int capacity = 0;   // rows of the ring
};

// An unnormalised softmax average over some positions: sum(exp(s - max) v) and sum(exp(s - max)).
// The average of no positions has sum = 0, any other has sum >= 1 or NaN.
struct Average {
  float max;
  float sum;
  float* out;  // [dim]
};

// One token of the delta rule in one value head. Sizes are multiples of sixteen.
struct DeltaStep {
  const float* q;   // [key_dim], normalized and scaled
  const float* k;   // [key_dim], normalized
  const float* v;   // of the value rows
  float kq = 0.0f;  // k . q
  float decay = 0.0f;
  float beta = 0.0f;
  int key_dim = 0;
};

struct LaneKernels {
  // out = x / sqrt(mean(x^2) + eps) * weight. No weight: null. out may be x.
  void (*norm)(const float* x, const uint16_t* weight, int n, float eps, float* out);
  // int16 codes, a scale a group (x ~ scale * code) and scale * sum(codes) a group.
  void (*quantize)(const float* x, int cols, int group, Layout layout, int16_t* codes,
                   float* scales, float* sums);
  // gate = act(gate) * up.
  void (*gate)(Activation activation, float* gate, const float* up, int n);
  // x *= sigmoid(gate).
  void (*open_gate)(float* x, const float* gate, int n);
  // out[i] = silu(sum of rows[j][i] * weights[j][i] over the taps j, in order).
  void (*convolve)(const float* const* rows, const float* const* weights, int taps, int n,
                   float* out);
  // Advances `rows` rows of the state [value rows, key_dim] by a token; out = those rows times q.
  void (*delta)(const DeltaStep& step, float* state, int rows, float* out);
  // sum(a * b); n is a multiple of sixteen.
  float (*dot)(const float* a, const float* b, int n);
  // x = cap * tanh(x / cap).
  void (*softcap)(float* x, int n, float cap);
  // sum(exp(x - max)).
  float (*sum_exp)(const float* x, int n, float max);
  // float32 to float16, nearest even.
  void (*narrow)(const float* x, int n, uint16_t* out);
  // For each query the average over its positions in [begin, end), which lies within one aligned
  // block of kBlock positions.
  void (*attend)(const AttentionTile& tile, int begin, int end, Average* out);
  // total = total and part together.
  void (*merge)(const Average& part, int dim, Average& total);
};

const LaneKernels& lane_kernels(Isa isa);

extern const LaneKernels kPortableLanes;
#if defined(__x86_64__)
extern const LaneKernels kAvx2Lanes;
extern const LaneKernels kAvx512Lanes;
#endif

}  // namespace mference::cpu
