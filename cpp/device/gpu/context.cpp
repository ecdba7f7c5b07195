#include "device/gpu/context.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "device/operands.h"

namespace mference::gpu {

namespace {

constexpr size_t kAlignment = 256;

size_t address(const View& view) {
  return reinterpret_cast<uintptr_t>(view.buffer->data()) + view.offset;
}

std::string describe(int fault, int value, int limit) {
  switch (fault) {
    case kFaultToken:
      return "EmbedRows.tokens: token " + std::to_string(value) + " is outside the table of " +
             std::to_string(limit) + " rows";
    case kFaultRouter:
      return "router logits are not finite in PostAttentionRouter; the weights or the input are "
             "corrupt";
    case kFaultPlainRouter:
      return "router logits are not finite in ResidualRouter; the weights or the input are corrupt";
    case kFaultPair:
      return "RoutedExperts.pairs: a pair is outside the rows";
    case kFaultSlot:
      return "RoutedExperts.guard: a slot is outside the slab";
    case kFaultArgmax:
      return "HeadArgmax: no logit is a number; the weights or the input are corrupt";
    default:
      return "TopCandidates.logits: fewer numbers than candidates; the weights or the input are "
             "corrupt";
  }
}

}  // namespace

Format format_of(const Affine& affine) {
  return {affine.bits, affine.group, address(affine.weight) % 4 == 0 ? 1 : 0};
}

Format both(Format a, const Format& b) {
  a.words = std::min(a.words, b.words);
  return a;
}

void set(Constants& constants, const Format& format) {
  constants.bits = format.bits;
  constants.group = format.group;
  constants.words = format.words;
}

void set_up(Constants& constants, const Format& format) {
  constants.up_bits = format.bits;
  constants.up_group = format.group;
  constants.up_words = format.words;
}

View vectors(const View& view, const char* field) {
  require(address(view) % 16 == 0, field, "the view does not start at a multiple of 16 bytes");
  return view;
}

Context::Context(Gpu& gpu, Queue& queue)
    : gpu_(gpu), queue_(queue), faults_(gpu.allocate(3 * kFaults * sizeof(int32_t), kAlignment)) {}

View Context::scratch(Slot slot, size_t bytes) {
  std::unique_ptr<Buffer>& buffer = slots_[slot];
  if (!buffer || buffer->size() < bytes) {
    if (buffer) outgrown_.push_back(std::move(buffer));
    buffer = gpu_.allocate(bytes, kAlignment);
  }
  return {buffer.get(), 0, bytes};
}

std::exception_ptr Context::take_fault() {
  const auto* faults = reinterpret_cast<const volatile int32_t*>(faults_->data());
  for (int i = 0; i < kFaults; ++i) {
    if (faults[3 * i] == 0) continue;
    const std::string text = describe(i, faults[3 * i + 1], faults[3 * i + 2]);
    std::memset(faults_->data(), 0, faults_->size());
    return std::make_exception_ptr(DeviceError(text));
  }
  return nullptr;
}

void Context::launch(const char* kernel, const Constants& constants,
                     std::initializer_list<View> views, const void* arguments, size_t size,
                     const Grid& grid) {
  Launch launch;
  launch.pipeline = &gpu_.library().pipeline(kernel, constants.list());
  std::copy(views.begin(), views.end(), launch.views.begin());
  launch.view_count = static_cast<int>(views.size());
  launch.constants = arguments;
  launch.constants_size = size;
  launch.groups = grid.groups;
  launch.threads = grid.threads;
  launch.threadgroup_bytes = grid.threadgroup_bytes;
  launch.label = kernel;
  queue_.launch(launch);
}

}  // namespace mference::gpu
