#include "emulator/stacks.h"

#include <sys/mman.h>

#include <new>

#include "emulator/switch_stack.h"

namespace softmetal {

Stacks::Stacks()
    : mapping_(::mmap(nullptr, kBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  base_ = (reinterpret_cast<usize>(mapping_) + kStackBytes - 1) & ~(kStackBytes - 1);
  // A thread that uses up its stack must not run into its neighbour's.
  for (usize i = 0; i < kMaxThreads; ++i) {
    ::mprotect(reinterpret_cast<void*>(base_ + i * kStackBytes), 4096, PROT_NONE);
  }
  free_.reserve(kMaxThreads);
  reclaim_all();
}

Stacks::~Stacks() {
  ::munmap(mapping_, kBytes + kStackBytes);
}

Lane* Stacks::take(void (*entry)()) {
  Lane* lane = free_.back();
  free_.pop_back();
  lane->stack_pointer = new_stack(lane, entry);
  return lane;
}

void Stacks::reclaim_all() {
  free_.clear();
  for (usize i = kMaxThreads; i-- > 0;) free_.push_back(lane_of_stack(base_ + i * kStackBytes));
}

}  // namespace softmetal
