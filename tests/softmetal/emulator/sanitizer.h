// Tells AddressSanitizer and ThreadSanitizer when an OS thread goes to its lanes' stacks and back.
// To them the lanes of an OS thread are one fiber.
#pragma once

#include "emulator/abi.h"

namespace softmetal {

class FiberScope {
 public:
  FiberScope();
  ~FiberScope();
  FiberScope(const FiberScope&) = delete;
  FiberScope& operator=(const FiberScope&) = delete;

  // On the OS thread's stack, right before and after the switches: no instrumented code may run
  // between.
  void leave_for_lanes(usize stacks, usize bytes);
  void come_back();

 private:
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] const void* thread_stack_ = nullptr;
  [[maybe_unused]] usize thread_stack_bytes_ = 0;
  [[maybe_unused]] void* fiber_ = nullptr;
  [[maybe_unused]] void* thread_ = nullptr;
};

}  // namespace softmetal
