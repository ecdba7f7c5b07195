// What SHA-256 asks of a processor: sha256_x86.cpp, sha256_arm.cpp or, for all others,
// sha256_none.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mference::sha256 {

// A message on its way: the hash value so far, and whole blocks of 64 bytes that come next.
struct Message {
  uint32_t* state;
  const std::byte* blocks;
};

bool accelerated();
void compress(Message message, size_t blocks);
// As many blocks of each. The messages have states of their own.
void compress_pair(Message a, Message b, size_t blocks);

}  // namespace mference::sha256
