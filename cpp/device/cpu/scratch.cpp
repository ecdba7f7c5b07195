#include "device/cpu/execute.h"

namespace mference::cpu {

std::byte* Scratch::reserve(size_t bytes) {
  if (bytes > size_) {
    block_.reset();
    block_.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{64})));
    size_ = bytes;
  }
  return block_.get();
}

}  // namespace mference::cpu
