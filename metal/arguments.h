// The constants of each kernel, laid out the same for the Metal compiler and for C++. Every field
// has four bytes. Offsets of parts count bytes, all else counts elements.
#pragma once

#if !defined(__METAL_VERSION__)
#include <cstdint>

namespace mference::gpu {
#endif

// What the launches and the kernels agree on.
enum Geometry {
  kLanes = 32,          // threads of a simdgroup
  kGemvSimdgroups = 4,  // of a threadgroup that multiplies few rows
  kGemvRows = 4,        // of the matrix, a simdgroup
  kGemvBlock = kGemvSimdgroups * kGemvRows,
  kGemvTokens = 4,   // rows of activations that share a decoded weight
  kTileTokens = 32,  // a tile of a product with many rows
  kTileRows = 64,
  kTileThreads = 128,
  kRowThreads = 512,  // of a threadgroup that owns a row of the hidden state
  kRowValues = 16,    // of that row, a thread: hidden sizes up to 8192
  kHeadBlock = 256,   // rows of the table in one threadgroup of HeadArgmax
  kMaxSplits = 64,    // of the positions of all rows of split attention together
  kHeadPairs = 2,     // query heads that a simdgroup of split attention serves
  kTileQueries = 8,   // of an attention tile
  kSortBlock = 2048,  // candidates sorted in one threadgroup
  kSortThreads = 1024,
  kMaxExperts = 8,            // of a tile
  kMaxParts = 128,            // routed outputs of a token that are summed
  kNormParts = 4,             // matrices that share a norm
  kConvolutionTaps = 8,       // at most
  kConvolutionRows = 16,      // of x, a thread
  kConvolutionThreads = 256,  // each with a channel
  kDeltaRows = 4,             // of a head's state, a simdgroup
  kDeltaSimdgroups = 4,       // of a threadgroup of the delta rule
  kDeltaBlock = kDeltaSimdgroups * kDeltaRows
};

// Slots of the stream's fault buffer: {raised, value, limit} each.
enum Fault {
  kFaultToken = 0,
  kFaultRouter,
  kFaultPlainRouter,  // ResidualRouter's
  kFaultPair,
  kFaultSlot,
  kFaultArgmax,
  kFaultCandidates,
  kFaults
};

struct EmbedArguments {
  int32_t cols;
  int32_t rows;
  float scale;
};

struct ProjectArguments {
  int32_t cols;
  int32_t rows;
  int32_t tokens;
  float eps;
  float softcap;
};

struct NormProjectArguments {
  int32_t cols;
  int32_t rows[kNormParts];  // of each matrix, 0 if absent
  int32_t tokens;
  float eps;
};

struct GatedArguments {
  int32_t cols;
  int32_t rows;
  int32_t tokens;
  int32_t scalar_bits;  // format of the scalar gate, as the function constants say that of others
  int32_t scalar_group;
  int32_t scalar_words;
};

// One of the three matrices inside an expert's blob, as byte offsets.
struct PartOffsets {
  uint32_t weight;
  uint32_t scales;
  uint32_t biases;
};

struct RoutedArguments {
  PartOffsets gate, up, down;
  int32_t hidden;
  int32_t width;
  int32_t k;
  int32_t pairs;               // rows * k: pairs lie below
  int32_t accumulate;          // down writes rows of the tile instead of rows of the pairs
  int32_t first[kMaxExperts];  // of an expert's pairs, in the operation's list
  int32_t count[kMaxExperts];
  int32_t start[kMaxExperts];  // of an expert's pairs, in the tile
  int32_t slots;               // of the slab, with a guard
  uint32_t stride_low;         // bytes from slot to slot, two halves
  uint32_t stride_high;
};

struct AccumulateArguments {
  int32_t hidden;
  int32_t k;
  int32_t pairs;  // rows * k
  int32_t first;  // of the expert's pairs, in the operation's list
  int32_t start;  // and in the tile
};

struct EpilogueArguments {
  int32_t heads;
  int32_t kv_heads;
  int32_t dim;
  int32_t q_width;
  int32_t rotated;
  int32_t distance;
  int32_t capacity;
  int32_t position;
  int32_t norm_values;
  float eps;
};

struct GateArguments {
  int32_t heads;
  int32_t dim;
  int32_t width;
};

struct ConvolutionArguments {
  int32_t rows;
  int32_t channels;
  int32_t taps;
};

struct DeltaArguments {
  int32_t rows;
  int32_t key_heads;
  int32_t value_heads;
  int32_t key_dim;
  int32_t value_dim;
  float eps;
};

struct AttentionArguments {
  int32_t rows;
  int32_t heads;
  int32_t kv_heads;
  int32_t dim;
  int32_t capacity;
  int32_t position;
  int32_t window;
  int32_t splits;  // of each row's positions
  int32_t length;  // positions of a split
  float scale;
};

struct RouterArguments {
  int32_t hidden;
  int32_t experts;
  int32_t k;
  int32_t scaled;  // whether the weights are multiplied by a scale of each expert
  float eps;
};

struct SlotArguments {
  int32_t experts;
  int32_t k;
};

struct TailArguments {
  int32_t hidden;
  int32_t parts;
  float eps;
};

struct ArgmaxArguments {
  int32_t cols;
  int32_t rows;
  int32_t blocks;
  float eps;
};

struct CandidateArguments {
  int32_t entries;  // of the input of this round
  int32_t keep;     // of each block
  int32_t first;    // 1 if the input are logits, 0 if it is the output of a round
};

struct FinishArguments {
  int32_t count;
  int32_t blocks;  // of the first round, each with a maximum and a sum
  int32_t vocabulary;
};

struct ZeroArguments {
  int32_t count;
};

#if !defined(__METAL_VERSION__)
}  // namespace mference::gpu
#endif
