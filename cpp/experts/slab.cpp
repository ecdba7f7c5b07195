#include "experts/slab.h"

#include <cstdint>
#include <string>

#include "base/errors.h"

namespace mference {

namespace {
// Huge pages on Linux and the registration unit of Metal's shared buffers both want this alignment.
constexpr size_t kAlignment = size_t{2} << 20;

size_t slab_size(int slots, size_t stride) {
  size_t size = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(slots), stride, &size)) size = SIZE_MAX;
  return size;
}
}  // namespace

Slab::Slab(int slots, size_t stride) try : memory_(slab_size(slots, stride), kAlignment) {
} catch (const DeviceError& error) {
  throw DeviceError(std::string(error.what()) + ", for " + std::to_string(slots) +
                    " expert slots of a layer; use fewer slots");
}

}  // namespace mference
