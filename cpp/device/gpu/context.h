// What turns operations into launches: a stream's queue, its scratch memory and its faults.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <vector>

#include "device/gpu/gpu.h"
#include "metal/arguments.h"

namespace mference::gpu {

// Values of the function constants of metal/common.h, in the order of their indices. A launch sets
// those that its kernel reads.
struct Constants {
  int32_t bits = 4, group = 64, words = 0;
  int32_t up_bits = 4, up_group = 64, up_words = 0;
  int32_t norm = 0;
  int32_t many_tokens = 0;
  int32_t silu = 0;
  int32_t half_cache = 0;
  int32_t head_chunks = 1;
  int32_t tensor = 0;
  int32_t gated = 0;
  int32_t guarded = 0;

  std::vector<int32_t> list() const {
    return {bits,        group, words,      up_bits,     up_group, up_words, norm,
            many_tokens, silu,  half_cache, head_chunks, tensor,   gated,    guarded};
  }
};

// How a kernel reads a matrix.
struct Format {
  int32_t bits = 4, group = 64, words = 0;

  bool operator==(const Format&) const = default;
};

// The format of a matrix that has been checked.
Format format_of(const Affine& affine);
// One that serves both: the weaker alignment.
Format both(Format a, const Format& b);
void set(Constants& constants, const Format& format);
void set_up(Constants& constants, const Format& format);

inline uint32_t blocks(int64_t count, int64_t step) {
  return static_cast<uint32_t>((count + step - 1) / step);
}

// Raises DeviceError unless the view starts at a multiple of 16 bytes, as vector loads need.
View vectors(const View& view, const char* field);

// One launch is written as: kernel, constants, views, arguments, grid.
struct Grid {
  std::array<uint32_t, 3> groups{1, 1, 1};
  uint32_t threads = kLanes;
  size_t threadgroup_bytes = 0;
};

class Context {
 public:
  // Memory that lives from one launch of an operation to the next. Launches run in order, so
  // operations share it.
  enum Slot {
    kRouterIn,
    kRouterLogits,
    kPartials,
    kExpertOut,
    kGates,
    kKeysQueries,
    kBest,
    kSortA,
    kSortB,
    kSums,
    kSlots
  };

  Context(Gpu& gpu, Queue& queue);

  View scratch(Slot slot, size_t bytes);
  View faults() const { return {faults_.get(), 0, faults_->size()}; }
  // The fault that a kernel raised, and no longer; null if there is none.
  std::exception_ptr take_fault();
  // Whether a product uses the GPU's matrix units, as a function constant.
  int32_t tensor(bool tiles) const { return tiles && gpu_.traits().tensor_ops ? 1 : 0; }

  template <class Arguments>
  void launch(const char* kernel, const Constants& constants, std::initializer_list<View> views,
              const Arguments& arguments, const Grid& grid) {
    launch(kernel, constants, views, &arguments, sizeof(Arguments), grid);
  }

 private:
  void launch(const char* kernel, const Constants& constants, std::initializer_list<View> views,
              const void* arguments, size_t size, const Grid& grid);

  Gpu& gpu_;
  Queue& queue_;
  std::unique_ptr<Buffer> faults_;
  std::array<std::unique_ptr<Buffer>, kSlots> slots_;
  std::vector<std::unique_ptr<Buffer>> outgrown_;  // launches may still read them
};

void encode(const EmbedRows& op, Context& context);
void encode(const NormProject& op, Context& context);
void encode(const QkvEpilogue& op, Context& context);
void encode(const Attention& op, Context& context);
void encode(const GateHeads& op, Context& context);
void encode(const ConvolutionTail& op, Context& context);
void encode(const GatedDelta& op, Context& context);
void encode(const Project& op, Context& context);
void encode(const PostAttentionRouter& op, Context& context);
void encode(const ResidualRouter& op, Context& context);
void encode(const SharedExpert& op, Context& context);
void encode(const LookUpSlots& op, Context& context);
void encode(const RoutedExperts& op, Context& context);
void encode(const Zero& op, Context& context);
void encode(const LayerTail& op, Context& context);
void encode(const ResidualTail& op, Context& context);
void encode(const HeadArgmax& op, Context& context);
void encode(const HeadLogits& op, Context& context);
void encode(const TopCandidates& op, Context& context);

// out = W x for `rows` rows of x, after a norm if there is one: what several operations end with.
struct Product {
  View x;
  View norm;
  Affine weight;
  View out;
  int rows = 0;
  float eps = 0.0f;
  float softcap = 0.0f;
  bool exact = false;  // never through float16 weights
  View gates{};        // f32[rows], or none: a row is multiplied by the sigmoid of its gate
};
void encode(const Product& product, Context& context);

// From this many rows on a product is made of tiles.
inline constexpr int kTileFrom = 8;

}  // namespace mference::gpu
