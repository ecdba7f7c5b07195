// SHA-256 by the SHA extensions of x86-64, with SSSE3 and SSE4.1.
#include <cpuid.h>
#include <immintrin.h>

#include "base/sha256_lanes.h"

namespace mference::sha256 {

namespace {

__m128i load(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

// Words are named from the highest of a register to the lowest, as in the manual: the instructions
// take the hash value a to h as abef and cdgh.
class Lane {
 public:
  explicit Lane(const uint32_t* state) {
    const __m128i dcba = load(state);
    const __m128i hgfe = load(state + 4);
    const __m128i abcd = _mm_shuffle_epi32(dcba, 0x1b);
    const __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1b);
    abef_ = _mm_unpackhi_epi64(efgh, abcd);
    cdgh_ = _mm_unpacklo_epi64(efgh, abcd);
  }

  void store(uint32_t* state) const {
    const __m128i abcd = _mm_unpackhi_epi64(cdgh_, abef_);
    const __m128i efgh = _mm_unpacklo_epi64(cdgh_, abef_);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_shuffle_epi32(abcd, 0x1b));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_shuffle_epi32(efgh, 0x1b));
  }

  void begin(const std::byte* block) {
    // Words are big-endian in a message.
    const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    w0_ = _mm_shuffle_epi8(load(block), order);
    w1_ = _mm_shuffle_epi8(load(block + 16), order);
    w2_ = _mm_shuffle_epi8(load(block + 32), order);
    w3_ = _mm_shuffle_epi8(load(block + 48), order);
    abef_before_ = abef_;
    cdgh_before_ = cdgh_;
  }

  // An instruction does two rounds: it gives the new abef, and the old one is the new cdgh.
  void rounds(const uint32_t* constants) {
    const __m128i sums = _mm_add_epi32(w0_, load(constants));
    cdgh_ = _mm_sha256rnds2_epu32(cdgh_, abef_, sums);
    abef_ = _mm_sha256rnds2_epu32(abef_, cdgh_, _mm_unpackhi_epi64(sums, sums));
  }

  void schedule() {
    const __m128i seven_back = _mm_alignr_epi8(w3_, w2_, 4);
    const __m128i sums = _mm_add_epi32(_mm_sha256msg1_epu32(w0_, w1_), seven_back);
    const __m128i next = _mm_sha256msg2_epu32(sums, w3_);
    drop();
    w3_ = next;
  }

  void drop() {
    w0_ = w1_;
    w1_ = w2_;
    w2_ = w3_;
  }

  void finish() {
    abef_ = _mm_add_epi32(abef_, abef_before_);
    cdgh_ = _mm_add_epi32(cdgh_, cdgh_before_);
  }

 private:
  __m128i abef_, cdgh_;
  __m128i abef_before_, cdgh_before_;
  __m128i w0_, w1_, w2_, w3_;
};

}  // namespace

bool accelerated() {
  constexpr unsigned kSse = bit_SSSE3 | bit_SSE4_1;
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & kSse) != kSse) return false;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & bit_SHA) != 0;
}

void compress(Message message, size_t blocks) {
  compress_lanes<Lane, 1>({Lane(message.state)}, {message}, blocks);
}

void compress_pair(Message a, Message b, size_t blocks) {
  compress_lanes<Lane, 2>({Lane(a.state), Lane(b.state)}, {a, b}, blocks);
}

}  // namespace mference::sha256
