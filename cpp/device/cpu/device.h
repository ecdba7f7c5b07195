// The CPU as a device: host memory, a worker thread as its queue, and kernels chosen at run time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace mference::cpu {

// Instruction sets with kernels of their own, in ascending order of preference.
enum class Isa { kPortable, kAvx2, kAvx512 };

struct Options {
  int threads = 0;  // 0: one for each processor this process may run on
  Isa isa = Isa::kPortable;
  // Plain float32 affine products instead of int16 activations: slower, the tests' second opinion.
  bool float32_products = false;
};

// What this processor can run, best last.
std::vector<Isa> available();
std::string isa_name(Isa isa);
// Raises DeviceError if the name is unknown or this processor lacks it; "auto" is the best one.
Isa parse_isa(const std::string& name);
int processor_count();

std::unique_ptr<Device> make_device(const Options& options);

}  // namespace mference::cpu
