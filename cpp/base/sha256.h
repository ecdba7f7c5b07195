// SHA-256 (FIPS 180-4) by the processor's own instructions, of one message or of two at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace mference {

class Sha256 {
 public:
  using Digest = std::array<std::byte, 32>;

  // Whether this processor has the instructions. There is no other implementation.
  static bool accelerated();

  // Raises DeviceError where they are missing.
  Sha256();

  void update(std::span<const std::byte> data);
  // Of what came so far; more may follow.
  Digest digest() const;

  // a.update(data_a) and b.update(data_b), in little more than the time of the longer one: each
  // step of a message waits for the one before it, and the other message's fit in between. a and b
  // are two objects.
  friend void update_pair(Sha256& a, std::span<const std::byte> data_a, Sha256& b,
                          std::span<const std::byte> data_b);

 private:
  static constexpr size_t kBlock = 64;

  size_t pending_size() const { return length_ % kBlock; }
  void complete_pending(std::span<const std::byte>& data);
  void keep_pending(std::span<const std::byte> data);

  std::array<uint32_t, 8> state_;
  // The first pending_size() bytes wait for the rest of their block.
  std::array<std::byte, kBlock> pending_;
  uint64_t length_ = 0;
};

void update_pair(Sha256& a, std::span<const std::byte> data_a, Sha256& b,
                 std::span<const std::byte> data_b);

}  // namespace mference
