// SHA-256 by the SHA2 instructions of AArch64.
#include <arm_neon.h>

#include "base/sha256_lanes.h"

#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace mference::sha256 {

namespace {

// Words are big-endian in a message.
uint32x4_t load_words(const std::byte* from) {
  return vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(from))));
}

class Lane {
 public:
  explicit Lane(const uint32_t* state) : abcd_(vld1q_u32(state)), efgh_(vld1q_u32(state + 4)) {}

  void store(uint32_t* state) const {
    vst1q_u32(state, abcd_);
    vst1q_u32(state + 4, efgh_);
  }

  void begin(const std::byte* block) {
    w0_ = load_words(block);
    w1_ = load_words(block + 16);
    w2_ = load_words(block + 32);
    w3_ = load_words(block + 48);
    abcd_before_ = abcd_;
    efgh_before_ = efgh_;
  }

  void rounds(const uint32_t* constants) {
    const uint32x4_t sums = vaddq_u32(w0_, vld1q_u32(constants));
    const uint32x4_t abcd = abcd_;
    abcd_ = vsha256hq_u32(abcd, efgh_, sums);
    efgh_ = vsha256h2q_u32(efgh_, abcd, sums);
  }

  void schedule() {
    const uint32x4_t next = vsha256su1q_u32(vsha256su0q_u32(w0_, w1_), w2_, w3_);
    drop();
    w3_ = next;
  }

  void drop() {
    w0_ = w1_;
    w1_ = w2_;
    w2_ = w3_;
  }

  void finish() {
    abcd_ = vaddq_u32(abcd_, abcd_before_);
    efgh_ = vaddq_u32(efgh_, efgh_before_);
  }

 private:
  uint32x4_t abcd_, efgh_;
  uint32x4_t abcd_before_, efgh_before_;
  uint32x4_t w0_, w1_, w2_, w3_;
};

}  // namespace

bool accelerated() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_SHA2) != 0;
#else
  return true;  // every Mac on arm64
#endif
}

void compress(Message message, size_t blocks) {
  compress_lanes<Lane, 1>({Lane(message.state)}, {message}, blocks);
}

void compress_pair(Message a, Message b, size_t blocks) {
  compress_lanes<Lane, 2>({Lane(a.state), Lane(b.state)}, {a, b}, blocks);
}

}  // namespace mference::sha256
