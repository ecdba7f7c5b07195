// One layer's expert slots: a single anonymous mapping, slot n at n * stride.
#pragma once

#include <cstddef>

#include "base/anonymous_memory.h"

namespace mference {

// Pages become resident as fills touch them; an untouched slot costs nothing.
class Slab {
 public:
  // Raises DeviceError if the machine has not that much memory.
  Slab(int slots, size_t stride);

  std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }

 private:
  AnonymousMemory memory_;
};

}  // namespace mference
