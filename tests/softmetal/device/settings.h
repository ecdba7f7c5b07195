// What a test may set: through softmetal_set, or before the first use through the environment as
// SOFTMETAL_ and the name in capitals.
#pragma once

#include <cstdint>

extern "C" {
// Both abort if there is no setting of this name.
void softmetal_set(const char* name, int64_t value);
int64_t softmetal_get(const char* name);
// Objective-C objects of a class that are alive; of every class if `class_name` is null.
int64_t softmetal_live_objects(const char* class_name);
long softmetal_page_size(void);
}

namespace softmetal {

enum class Setting {
  kSeed,               // of the order in which lanes, SIMD-groups and threadgroups run; 0: in order
  kThreads,            // that run threadgroups; 0: one for each core
  kCheck,              // 1: every access of a kernel is checked against the buffers it was given
  kPageSize,           // of newBufferWithBytesNoCopy
  kMaxBufferLength,    // in bytes
  kFailCommandBuffer,  // the n-th committed from now on fails, counted from 1; 0: none
  kFailCompile,        // 1: newLibraryWithSource fails
  kDelayCompletionUs,  // completed handlers run this much later
  kEventTimeoutMs,     // after which a command buffer that waits for an event fails
  kOsMajor,            // the version of macOS that NSProcessInfo tells
  kGpuFamily,          // the newest MTLGPUFamilyApple: 7 for M1, 9 for M3
  kTensors,   // 1: the GPU is of MTLGPUFamilyMetal4, whose tensors kernels bring themselves
  kNoDevice,  // 1: MTLCreateSystemDefaultDevice gives nil
  kCount,
};

int64_t get(Setting setting);
void set(Setting setting, int64_t value);
// The value, minus one afterwards if it was positive: true when it has just reached zero.
bool count_down(Setting setting);

}  // namespace softmetal
