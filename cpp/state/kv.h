// Keys and values of one sequence: a ring for each sliding layer, a line for each full one.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "device/device.h"

namespace mference {

// A layer's need: rows are dropped once they are `window` positions old; window 0 keeps all, and a
// layer without heads keeps none.
struct KvShape {
  int heads = 0;
  int dim = 0;
  int window = 0;
};

// Capacity of a layer: min(context, window + chunk) rows, so that a chunk can be written before
// the rows it still needs leave the window.
int kv_capacity(const KvShape& shape, int context, int chunk);

// The oldest of `written` positions whose row has not been overwritten.
int kv_oldest(int written, int capacity);

class KvState {
 public:
  // Rows cost memory once they are written. Raises DeviceError if a full context cannot fit.
  KvState(Device& device, const std::vector<KvShape>& layers, int context, int chunk, KvType type);

  const KvCache& layer(int index) const { return layers_[index]; }
  int position() const { return position_; }
  int context() const { return context_; }
  size_t bytes() const { return bytes_; }

  // Before rows are written behind the position, and once they all are. Rows of a pass that failed
  // between the two stay out of the sequence, but what they overwrote is gone. Raises DeviceError
  // if they pass the context.
  void write(int rows);
  void advance(int rows);
  // Forgets the positions from `position` on. Raises DeviceError if rows that would be needed
  // again have been overwritten, or if `position` lies ahead.
  void rewind(int position);

  // One past the highest position ever written since the last full reset.
  int written() const { return written_; }
  KvType type() const { return type_; }
  std::vector<int> capacities() const;  // by layer
  // The rows that hold something, layer after layer: keys, then values.
  std::vector<std::byte> save() const;
  // The state in which save() gave `rows`, of layers whose rows are these.
  void restore(int position, int written, const std::vector<std::byte>& rows);

 private:
  // The rows that hold something after `written` positions, in the order of save().
  std::vector<View> used(int written) const;

  std::unique_ptr<Buffer> buffer_;
  std::vector<KvShape> shapes_;
  std::vector<KvCache> layers_;
  int context_;
  KvType type_;
  int position_ = 0;
  int written_ = 0;
  size_t bytes_ = 0;
};

}  // namespace mference
