// One threadgroup at a time on one OS thread: its lanes are fibers that switch where they meet.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "emulator/dispatch.h"
#include "emulator/random.h"
#include "emulator/sanitizer.h"
#include "emulator/stacks.h"

namespace softmetal {

struct Group {
 public:
  Group();

  // Raises KernelError.
  void run(const Dispatch& dispatch, u64 index);
  bool call_with_constants(bool (*function)(), const ConstantValue* constants);

  // Around threadgroup memory.
  static constexpr usize kGuard = 4096;

  // The rest is for the lanes.
  [[noreturn]] void fail(Lane* lane, const std::string& what);
  // The lane of a SIMD-group to go on with: null if none can.
  Lane* next(SimdGroup& simdgroup);
  [[noreturn]] void finish(Lane* lane);

  const Dispatch* dispatch = nullptr;
  void* scheduler = nullptr;  // where the OS thread's own stack was left
  Stacks stacks;
  Random random;
  std::string error;
  Invocation invocation{};
  bool (*predicate)() = nullptr;
  bool predicate_result = false;

  // Threadgroup memory: dynamic arrays from its beginning, variables below its end.
  u8* memory_first() { return memory_.data() + kGuard; }
  u8* memory_last() { return memory_.data() + kGuard + kMemoryBytes; }

 private:
  void lay_out_memory();
  void check_memory();
  usize guard_bytes() const;
  void start(Lane* lane, SimdGroup& simdgroup, u32 index);
  void schedule();
  void enter(Lane* lane);
  [[noreturn]] void report(const std::string& what);
  static void lane_entry();

  // More than a kernel may have: there are gaps between its variables.
  static constexpr usize kMemoryBytes = kThreadgroupBytes + 4096;
  alignas(64) std::array<u8, kMemoryBytes + 2 * kGuard> memory_;
  u8* dynamic_last_ = nullptr;
  u8* variables_first_ = nullptr;
  Vector3 position_{};
  Vector3 extent_{};
  u32 threads_ = 0;
  u32 simdgroup_count_ = 0;
  std::array<SimdGroup, kMaxThreads / kSimdWidth> simdgroups_;
  FiberScope fibers_;
};

}  // namespace softmetal
