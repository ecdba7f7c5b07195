// The stacks of one OS thread's lanes.
#pragma once

#include <vector>

#include "emulator/abi.h"

namespace softmetal {

class Stacks {
 public:
  Stacks();
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  // The record of a lane on a free stack, to be entered at `entry`.
  Lane* take(void (*entry)());
  void give_back(Lane* lane) { free_.push_back(lane); }
  void reclaim_all();
  bool contains(usize address) const { return address >= base_ && address < base_ + kBytes; }
  usize base() const { return base_; }

  static constexpr usize kBytes = kMaxThreads * kStackBytes;

 private:
  void* mapping_;
  usize base_;
  std::vector<Lane*> free_;
};

}  // namespace softmetal
