// Apple's GPUs. The rest of the core sees only this header, which is plain C++.
#pragma once

#include <memory>
#include <string>

#include "device/gpu/gpu.h"

namespace mference::metal {

// The system's GPU, with the kernels of `kernel_directory` (the files of metal/) compiled for it. Its
// matrix units for tensors are used if it has them and they pass a check.
// Raises DeviceError saying what is missing: a GPU, its family, the version of the system.
std::shared_ptr<gpu::Gpu> open_gpu(const std::string& kernel_directory);

}  // namespace mference::metal
