// Runs a grid of threadgroups of a kernel.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "emulator/abi.h"

namespace softmetal {

// A kernel did what a GPU would not survive or not define.
class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Memory that a kernel was given.
struct Range {
  usize first = 0;
  usize last = 0;
  bool writable = false;
  const Argument* argument = nullptr;  // null for the constants of the library
};

struct Dispatch {
  const Kernel* kernel = nullptr;
  void* buffers[kMaxBuffers] = {};
  u32 threadgroup_bytes[kMaxBuffers] = {};  // of its dynamic threadgroup arrays
  u32 static_threadgroup_bytes = 0;
  const std::vector<const ThreadgroupVariable*>* variables = nullptr;
  const ConstantValue* constants = nullptr;
  Vector3 threadgroups{1, 1, 1};
  Vector3 threads_per_threadgroup{1, 1, 1};
  Vector3 threads_per_grid{1, 1, 1};  // less than whole threadgroups for dispatchThreads
  bool check = false;                 // `ranges` hold all that the kernel may touch
  std::vector<Range> ranges;
  u64 seed = 0;
};

// Raises KernelError, which names the kernel.
void run(const Dispatch& dispatch);

// Calls `function` as a lane that has no grid around it: it may read function constants only.
bool call_with_constants(bool (*function)(), const ConstantValue* constants);

Runtime* runtime();

}  // namespace softmetal
