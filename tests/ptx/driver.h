// What this device needs of the CUDA driver, opened at run time: neither its headers nor its
// library are needed to build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace mference::ptx {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = uint64_t;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;

inline constexpr CUresult kAlreadyRegistered = 712;  // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
inline constexpr unsigned kHostPortable = 1, kHostMapped = 2;  // CU_MEMHOSTALLOC_, _HOSTREGISTER_
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr int kJitErrorLog = 5, kJitErrorLogBytes = 6;  // CU_JIT_

// Member, arguments, exported name.
#define MFERENCE_CUDA(X)                                                                         \
  X(cuInit, (unsigned), "cuInit")                                                                \
  X(cuGetErrorName, (CUresult, const char**), "cuGetErrorName")                                  \
  X(cuGetErrorString, (CUresult, const char**), "cuGetErrorString")                              \
  X(cuDeviceGet, (CUdevice*, int), "cuDeviceGet")                                                \
  X(cuDeviceGetName, (char*, int, CUdevice), "cuDeviceGetName")                                  \
  X(cuDevicePrimaryCtxRetain, (CUcontext*, CUdevice), "cuDevicePrimaryCtxRetain")                \
  X(cuCtxSetCurrent, (CUcontext), "cuCtxSetCurrent")                                             \
  X(cuModuleLoadDataEx, (CUmodule*, const void*, unsigned, int*, void**), "cuModuleLoadDataEx")  \
  X(cuModuleGetFunction, (CUfunction*, CUmodule, const char*), "cuModuleGetFunction")            \
  X(cuMemHostAlloc, (void**, size_t, unsigned), "cuMemHostAlloc")                                \
  X(cuMemFreeHost, (void*), "cuMemFreeHost")                                                     \
  X(cuMemHostRegister, (void*, size_t, unsigned), "cuMemHostRegister_v2")                        \
  X(cuMemHostUnregister, (void*), "cuMemHostUnregister")                                         \
  X(cuMemHostGetDevicePointer, (CUdeviceptr*, void*, unsigned), "cuMemHostGetDevicePointer_v2")  \
  X(cuMemAlloc, (CUdeviceptr*, size_t), "cuMemAlloc_v2")                                         \
  X(cuMemFree, (CUdeviceptr), "cuMemFree_v2")                                                    \
  X(cuMemcpyHtoDAsync, (CUdeviceptr, const void*, size_t, CUstream), "cuMemcpyHtoDAsync_v2")     \
  X(cuMemcpyDtoHAsync, (void*, CUdeviceptr, size_t, CUstream), "cuMemcpyDtoHAsync_v2")           \
  X(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream), "cuMemsetD8Async")          \
  X(cuStreamCreate, (CUstream*, unsigned), "cuStreamCreate")                                     \
  X(cuStreamDestroy, (CUstream), "cuStreamDestroy_v2")                                           \
  X(cuStreamSynchronize, (CUstream), "cuStreamSynchronize")                                      \
  X(cuEventCreate, (CUevent*, unsigned), "cuEventCreate")                                        \
  X(cuEventDestroy, (CUevent), "cuEventDestroy_v2")                                              \
  X(cuEventRecord, (CUevent, CUstream), "cuEventRecord")                                         \
  X(cuEventElapsedTime, (float*, CUevent, CUevent), "cuEventElapsedTime")                        \
  X(cuLaunchKernel,                                                                              \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
     void**, void**),                                                                            \
    "cuLaunchKernel")

// The first GPU. One for the process, never closed: the driver may be gone before it would be.
class Driver {
 public:
  // Raises DeviceError if there is no driver or no GPU.
  static const Driver& instance();

#define MFERENCE_DECLARE(member, arguments, name) CUresult(*member) arguments = nullptr;
  MFERENCE_CUDA(MFERENCE_DECLARE)
#undef MFERENCE_DECLARE

  // Raises DeviceError "WHAT: NAME, description" unless the result is success.
  void check(CUresult result, const std::string& what) const;
  std::string describe(CUresult result) const;
  // Before other calls of a thread that may be new here.
  void enter() const { check(cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }
  CUcontext context() const { return context_; }
  const std::string& gpu_name() const { return name_; }

 private:
  Driver();

  CUcontext context_ = nullptr;
  std::string name_;
};

}  // namespace mference::ptx
