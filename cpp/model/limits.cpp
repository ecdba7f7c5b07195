#include "model/limits.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "base/errors.h"
#include "device/check.h"

namespace mference {

namespace {

constexpr int kMaxLayers = 1024;
constexpr int kMaxWidth = 1 << 16;
constexpr int kMaxExperts = INT16_MAX;  // a cache's table holds int16
constexpr int kMaxVocabulary = 1 << 24;
constexpr int kMaxPositions = 1 << 30;
constexpr int kMaxChunk = 4096;
constexpr int kMaxReaders = 256;
constexpr size_t kMaxStride = size_t{1} << 40;

void within(const char* what, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    throw DeviceError(std::string(what) + " is " + std::to_string(value) + "; it must be " +
                      std::to_string(low) + " to " + std::to_string(high));
  }
}

void positive(const char* what, double value, double high) {
  if (!(value > 0.0 && value <= high)) {
    throw DeviceError(std::string(what) + " is " + std::to_string(value) +
                      "; it must be positive and at most " + std::to_string(high));
  }
}

void check_linear(const Arch& a) {
  for (const auto& [key, dim] : {std::pair{"linearKeyHeadDim", a.linear_key_dim},
                                 {"linearValueHeadDim", a.linear_value_dim}}) {
    within(key, dim, kDeltaDimStep, kMaxDeltaDim);
    if (dim % kDeltaDimStep != 0) {
      throw DeviceError(std::string(key) + " is " + std::to_string(dim) +
                        "; it must be a multiple of " + std::to_string(kDeltaDimStep));
    }
  }
  const int most = kMaxWidth / std::max(a.linear_key_dim, a.linear_value_dim);
  within("linearNumKHeads", a.linear_key_heads, 1, most);
  within("linearNumVHeads", a.linear_value_heads, 1, most);
  if (a.linear_value_heads % a.linear_key_heads != 0) {
    throw DeviceError("linearNumVHeads is " + std::to_string(a.linear_value_heads) +
                      "; it must be a multiple of linearNumKHeads, " +
                      std::to_string(a.linear_key_heads));
  }
  within("linearConvKernelSize", a.linear_taps, 2, kMaxTaps);
}

void check_arch(const Arch& a) {
  within("numLayers", a.layers, 1, kMaxLayers);
  within("hiddenSize", a.hidden, 1, kMaxWidth);
  within("ffnIntermediate", a.dense_width, 1, kMaxWidth);
  within("moeIntermediateSize", a.expert_width, 1, kMaxWidth);
  within("numExperts", a.experts, 1, kMaxExperts);
  within("topKExperts", a.top_k, 1, a.experts);
  within("vocabSize", a.vocabulary, 1, kMaxVocabulary);
  within("headDim", a.head_dim, 1, kMaxWidth);
  within("fullHeadDim", a.full_head_dim, 1, kMaxWidth);
  const int most_heads = kMaxWidth / std::max(a.head_dim, a.full_head_dim);
  within("numHeads", a.heads, 1, most_heads);
  within("numKVHeads", a.kv_heads, 1, most_heads);
  within("numFullKVHeads", a.full_kv_heads, 1, most_heads);
  positive("ropeTheta", a.rope_theta, 1e30);
  positive("fullRopeTheta", a.full_rope_theta, 1e30);
  positive("partialRotaryFactor", a.partial_rotary, 1.0);
  within("the length of fullAttentionLayerMask", std::ssize(a.mask), a.layers, a.layers);
  const auto& kinds = find_family(a.family).kinds;
  for (const LayerKind kind : a.mask) {
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
      throw DeviceError("fullAttentionLayerMask has the kind " +
                        std::to_string(static_cast<int>(kind)) + ", which no layer of the family " +
                        a.family + " is");
    }
  }
  const auto has = [&](LayerKind kind) {
    return std::find(a.mask.begin(), a.mask.end(), kind) != a.mask.end();
  };
  if (has(LayerKind::kSliding)) within("slidingWindow", a.window, 1, kMaxPositions);
  if (std::find(kinds.begin(), kinds.end(), LayerKind::kLinear) != kinds.end()) check_linear(a);
}

void check_files(const ExpertFiles& files, const Arch& a) {
  within("the number of layer files", std::ssize(files.paths), a.layers, a.layers);
  within("the number of layers with experts", std::ssize(files.offsets), a.layers, a.layers);
  if (files.stride == 0 || files.stride > kMaxStride) {
    throw DeviceError("an expert of " + std::to_string(files.stride) + " bytes is not possible");
  }
  for (const auto& offsets : files.offsets) {
    within("the number of a layer's experts", std::ssize(offsets), a.experts, a.experts);
    for (const size_t offset : offsets) {
      if (offset > static_cast<size_t>(INT64_MAX) - files.stride) {
        throw DeviceError("an expert at offset " + std::to_string(offset) + " is in no file");
      }
    }
  }
}

}  // namespace

ModelInit checked(ModelInit init) {
  check_arch(init.arch);
  check_files(init.experts, init.arch);
  within("the context", init.context, 1, kMaxPositions);
  within("the prefill chunk", init.chunk, 1, kMaxChunk);
  within("the number of readers", init.readers, 1, kMaxReaders);
  within("the number of expert slots", init.slots, 0, kMaxExperts);
  init.chunk = std::min(init.chunk, init.context);
  init.slots = std::min(init.slots, init.arch.experts);
  // Prefill reads one tile of experts while another is computed.
  const int fewest = std::min(std::max(init.arch.top_k, 2), init.arch.experts);
  if (init.slots != 0 && init.slots < fewest) {
    throw DeviceError("a layer needs at least " + std::to_string(fewest) +
                      " expert slots, one for each expert a token selects");
  }
  return init;
}

}  // namespace mference
