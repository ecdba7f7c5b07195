// Accesses of kernels that go wrong: those a compiled-in check finds, and those that fault.
#pragma once

#include "emulator/abi.h"

namespace softmetal {

// Fails the running lane unless its kernel may touch these bytes. Called where a kernel that was
// compiled with checks reads or writes.
void check_access(const void* address, usize size, bool write);

// From now on a fault inside a kernel fails the kernel, not the process.
void catch_faults();

// While one lives, the faults of this thread are those of a kernel.
class FaultScope {
 public:
  explicit FaultScope(Group* group);
  ~FaultScope();
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;

 private:
  Group* outer_;
};

}  // namespace softmetal
