// For processors whose SHA-256 instructions nobody has written down here, if they have any.
#include "base/sha256_blocks.h"

namespace mference::sha256 {

bool accelerated() {
  return false;
}

// Sha256 makes no object, so nothing calls these.
void compress(Message /*message*/, size_t /*blocks*/) {}
void compress_pair(Message /*a*/, Message /*b*/, size_t /*blocks*/) {}

}  // namespace mference::sha256
