#pragma once

#include "emulator/abi.h"

namespace softmetal {

// A small generator for schedules: the same seed gives the same schedule on every host.
class Random {
 public:
  void seed(u64 seed, u64 stream) {
    state_ =
        seed == 0 ? 0 : (seed * 0x9E3779B97F4A7C15ull ^ (stream + 1) * 0xBF58476D1CE4E5B9ull) | 1;
  }
  // Whether there is a seed: without one, everything runs in order.
  explicit operator bool() const { return state_ != 0; }
  u32 below(u32 count) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    if (state_ == 0) state_ = 1;
    return static_cast<u32>((state_ >> 33) % count);
  }

 private:
  u64 state_ = 0;
};

}  // namespace softmetal
