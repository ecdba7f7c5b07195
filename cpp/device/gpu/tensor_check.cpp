#include "device/gpu/tensor_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "device/gpu/context.h"

namespace mference::gpu {

namespace {

constexpr int kCols = 128;
constexpr int kGroup = 64;
// Of the largest sum. Tensors take activations as float16, which rounds them by 1 / 2048 at most.
constexpr float kBar = 2e-3f;

template <class T, class F>
std::unique_ptr<Buffer> fill(Gpu& gpu, size_t count, F&& value) {
  auto buffer = gpu.allocate(count * sizeof(T), 16);
  for (size_t i = 0; i < count; ++i) {
    const T own = value(i);
    std::memcpy(buffer->data() + i * sizeof(T), &own, sizeof(T));
  }
  return buffer;
}

View whole(const std::unique_ptr<Buffer>& buffer) {
  return {buffer.get(), 0, buffer->size()};
}

}  // namespace

bool tensors_multiply(Gpu& gpu) {
  constexpr size_t kSums = size_t{kTileTokens} * kTileRows;
  constexpr size_t kGroups = size_t{kTileRows} * kCols / kGroup;
  // Numbers without a pattern that a wrong order of rows or columns would keep, and a column as
  // hidden states have it, beyond the range of float16.
  const auto x = fill<float>(gpu, size_t{kTileTokens} * kCols, [](size_t i) {
    const float own = static_cast<float>(i * 7919 % 2003) / 1000.0f - 1.0f;
    return i % kCols == kCols / 3 ? 2e5f * own : own;
  });
  const auto norm = fill<uint16_t>(gpu, kCols, [](size_t i) { return 0x3f80 + i % 64; });
  const auto weight = fill<uint16_t>(gpu, size_t{kTileRows} * kCols / 4,
                                     [](size_t i) { return i * 40503 + i / 7; });
  const auto scales = fill<uint16_t>(gpu, kGroups, [](size_t i) { return 0x3c00 + i % 128; });
  const auto biases = fill<uint16_t>(gpu, kGroups, [](size_t i) { return 0xbd80 + i % 128; });
  std::array<std::unique_ptr<Buffer>, 2> out;

  const auto queue = gpu.make_queue();
  Context context(gpu, *queue);
  for (int32_t tensor = 0; tensor < 2; ++tensor) {
    out[tensor] = fill<float>(gpu, kSums, [](size_t) { return 0.0f; });
    Constants constants;
    set(constants, {4, kGroup, 1});
    constants.norm = 1;
    constants.tensor = tensor;
    const ProjectArguments arguments{kCols, kTileRows, kTileTokens, 1e-6f, 0.0f};
    context.launch("project_tiles", constants,
                   {whole(x), whole(norm), whole(weight), whole(scales), whole(biases),
                    whole(out[tensor]), whole(x)},
                   arguments, {{1, 1, 1}, kTileThreads, 0});
  }
  queue->synchronize();

  std::array<std::array<float, kSums>, 2> sums;
  for (int i = 0; i < 2; ++i) std::memcpy(sums[i].data(), out[i]->data(), sizeof(sums[i]));
  float largest = 0.0f, error = 0.0f;
  for (size_t i = 0; i < kSums; ++i) {
    largest = std::max(largest, std::fabs(sums[0][i]));
    const float difference = std::fabs(sums[0][i] - sums[1][i]);
    error = difference <= error ? error : difference;  // NaN, too, is an error
  }
  return error <= kBar * largest;
}

}  // namespace mference::gpu
