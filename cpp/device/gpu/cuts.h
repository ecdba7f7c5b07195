// Where a long memory is cut into buffers.
#pragma once

#include <span>
#include <vector>

#include "device/device.h"

namespace mference::gpu {

// Ranges that cover [0, size) in order, each at most `limit` bytes long, cut only between spans;
// spans come in any order. Raises DeviceError if a span is longer than the limit, or if there are
// no spans to cut between.
std::vector<Range> cut(size_t size, size_t limit, std::span<const Range> spans);

}  // namespace mference::gpu
