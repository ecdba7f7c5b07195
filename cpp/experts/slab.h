// One layer's expert slots: a single anonymous mapping, slot n at n * stride.
#pragma once

#include <cstddef>

namespace mference {

// Pages become resident as fills touch them; an untouched slot costs nothing.
class Slab {
 public:
  Slab(int slots, size_t stride);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* base_ = nullptr;
  size_t reserved_ = 0;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mference
