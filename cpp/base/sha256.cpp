#include "base/sha256.h"

#include <algorithm>
#include <cstring>

#include "base/errors.h"
#include "base/sha256_blocks.h"

namespace mference {

namespace {

// FIPS 180-4, 5.3.3.
constexpr std::array<uint32_t, 8> kInitial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                              0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

// Writes the low `size` bytes of a number, the highest of them first.
void put_big_endian(uint64_t value, std::byte* to, size_t size) {
  for (size_t i = 0; i < size; ++i) to[i] = static_cast<std::byte>(value >> 8 * (size - 1 - i));
}

}  // namespace

bool Sha256::accelerated() {
  static const bool found = sha256::accelerated();
  return found;
}

Sha256::Sha256() : state_(kInitial) {
  if (!accelerated()) {
    throw DeviceError(
        "this processor has no instructions for SHA-256: hash with Python's hashlib instead");
  }
}

// Takes what the pending block lacks, as far as there is data, and hashes it once it is whole.
void Sha256::complete_pending(std::span<const std::byte>& data) {
  if (pending_size() == 0) return;
  const auto head = data.first(std::min(data.size(), kBlock - pending_size()));
  keep_pending(head);
  data = data.subspan(head.size());
  if (pending_size() == 0) sha256::compress({state_.data(), pending_.data()}, 1);
}

void Sha256::keep_pending(std::span<const std::byte> data) {
  if (!data.empty()) std::memcpy(pending_.data() + pending_size(), data.data(), data.size());
  length_ += data.size();
}

void Sha256::update(std::span<const std::byte> data) {
  complete_pending(data);
  const size_t blocks = data.size() / kBlock;
  sha256::compress({state_.data(), data.data()}, blocks);
  length_ += blocks * kBlock;
  keep_pending(data.subspan(blocks * kBlock));
}

void update_pair(Sha256& a, std::span<const std::byte> data_a, Sha256& b,
                 std::span<const std::byte> data_b) {
  a.complete_pending(data_a);
  b.complete_pending(data_b);
  const size_t blocks = std::min(data_a.size(), data_b.size()) / Sha256::kBlock;
  const size_t size = blocks * Sha256::kBlock;
  sha256::compress_pair({a.state_.data(), data_a.data()}, {b.state_.data(), data_b.data()}, blocks);
  a.length_ += size;
  b.length_ += size;
  a.update(data_a.subspan(size));
  b.update(data_b.subspan(size));
}

Sha256::Digest Sha256::digest() const {
  // A one bit, zeros, and the length in bits at the end of a block.
  std::array<std::byte, 2 * kBlock> padding{std::byte{0x80}};
  const size_t size = (pending_size() < kBlock - 8 ? 1 : 2) * kBlock - pending_size();
  put_big_endian(length_ * 8, &padding[size - 8], 8);
  Sha256 padded = *this;
  padded.update(std::span(padding).first(size));
  Digest digest;
  for (size_t i = 0; i < state_.size(); ++i) put_big_endian(padded.state_[i], &digest[4 * i], 4);
  return digest;
}

}  // namespace mference
