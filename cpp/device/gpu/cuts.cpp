#include "device/gpu/cuts.h"

#include <algorithm>
#include <string>

#include "base/errors.h"

namespace mference::gpu {

std::vector<Range> cut(size_t size, size_t limit, std::span<const Range> spans) {
  if (size <= limit) return {{0, size}};
  std::vector<Range> ordered(spans.begin(), spans.end());
  std::sort(ordered.begin(), ordered.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  ordered.push_back({size, size});
  std::vector<Range> cuts;
  Range current{0, 0};
  for (const Range& span : ordered) {
    if (span.last - current.first > limit) {
      if (current.last > current.first) cuts.push_back(current);
      current.first = current.last;
      if (span.last - current.first > limit) {
        throw DeviceError("bytes " + std::to_string(span.first) + " to " +
                          std::to_string(span.last) + " do not fit a buffer of this GPU, which " +
                          std::to_string(limit) + " bytes are the most for; choose device cpu");
      }
    }
    current.last = std::max(current.last, span.last);
  }
  cuts.push_back(current);
  return cuts;
}

}  // namespace mference::gpu
