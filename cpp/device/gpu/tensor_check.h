// Whether a GPU's matrix units for tensors compute what its other units do.
#pragma once

#include "device/gpu/gpu.h"

namespace mference::gpu {

// Multiplies a small matrix with and without tensors. Raises DeviceError if the GPU takes no such
// kernel or fails while it runs.
bool tensors_multiply(Gpu& gpu);

}  // namespace mference::gpu
