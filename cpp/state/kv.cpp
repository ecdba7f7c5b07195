#include "state/kv.h"

#include <algorithm>
#include <string>

#include "base/errors.h"
#include "base/numeric.h"

namespace mference {

namespace {
constexpr size_t kAlignment = 4096;
}  // namespace

int kv_capacity(const KvShape& shape, int context, int chunk) {
  if (shape.heads == 0) return 0;
  return shape.window == 0 ? context : std::min(context, shape.window + chunk);
}

int kv_oldest(int written, int capacity) {
  return std::max(0, written - capacity);
}

KvState::KvState(Device& device, const std::vector<KvShape>& layers, int context, int chunk,
                 KvType type)
    : shapes_(layers), context_(context), type_(type) {
  const size_t element = type == KvType::kFloat16 ? 2 : 4;
  for (const KvShape& shape : layers) {
    KvCache cache;
    cache.type = type;
    cache.capacity = kv_capacity(shape, context, chunk);
    cache.heads = shape.heads;
    cache.dim = shape.dim;
    const size_t size = static_cast<size_t>(cache.capacity) * shape.heads * shape.dim * element;
    for (View* view : {&cache.keys, &cache.values}) {
      *view = {nullptr, bytes_, size};
      bytes_ += round_up(size, kAlignment);
    }
    layers_.push_back(cache);
  }
  if (bytes_ == 0) return;
  // One reservation for all layers, so that the system judges their sum.
  try {
    buffer_ = device.allocate(bytes_, kAlignment);
  } catch (const DeviceError& error) {
    throw DeviceError(std::string(error.what()) + ", for the keys and values of a context of " +
                      std::to_string(context) + " tokens; use a smaller context");
  }
  for (KvCache& cache : layers_) cache.keys.buffer = cache.values.buffer = buffer_.get();
}

void KvState::write(int rows) {
  if (rows < 0 || rows > context_ - position_) {
    throw DeviceError("cannot write " + std::to_string(rows) + " rows at position " +
                      std::to_string(position_) + " of a context of " + std::to_string(context_) +
                      " tokens");
  }
  written_ = std::max(written_, position_ + rows);
}

void KvState::advance(int rows) {
  position_ += rows;
}

void KvState::rewind(int position) {
  if (position < 0 || position > position_) {
    throw DeviceError("cannot rewind from position " + std::to_string(position_) + " to " +
                      std::to_string(position));
  }
  if (position == 0) {
    position_ = written_ = 0;
    return;
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int oldest_needed = std::max(0, position - shapes_[i].window + 1);
    if (shapes_[i].window > 0 && oldest_needed < kv_oldest(written_, layers_[i].capacity)) {
      throw DeviceError("cannot rewind to position " + std::to_string(position) +
                        ": its window has been overwritten; start again from 0");
    }
  }
  position_ = position;
}

std::vector<View> KvState::used(int written) const {
  std::vector<View> views;
  for (const KvCache& cache : layers_) {
    if (cache.capacity == 0) continue;
    const size_t row = cache.keys.size / cache.capacity;
    const size_t size = row * std::min(written, cache.capacity);
    views.push_back(cache.keys.at(0, size));
    views.push_back(cache.values.at(0, size));
  }
  return views;
}

std::vector<int> KvState::capacities() const {
  std::vector<int> capacities;
  for (const KvCache& cache : layers_) capacities.push_back(cache.capacity);
  return capacities;
}

std::vector<std::byte> KvState::save() const {
  const std::vector<View> views = used(written_);
  size_t size = 0;
  for (const View& view : views) size += view.size;
  std::vector<std::byte> rows;
  rows.reserve(size);
  for (const View& view : views) {
    const std::byte* data = view.buffer->data() + view.offset;
    rows.insert(rows.end(), data, data + view.size);
  }
  return rows;
}

void KvState::restore(int position, int written, const std::vector<std::byte>& rows) {
  const std::byte* from = rows.data();
  for (const View& view : used(written)) {
    std::copy_n(from, view.size, view.buffer->data() + view.offset);
    from += view.size;
  }
  position_ = position;
  written_ = written;
}

}  // namespace mference
