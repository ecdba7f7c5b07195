// What the emulator and a compiled .metal source share. The kernels are compiled without any
// system header, so this one has none either.
#pragma once

namespace softmetal {

using u8 = unsigned char;
using u32 = unsigned int;
using u64 = unsigned long long;
using usize = unsigned long;

inline constexpr u32 kAbiVersion = 1;
inline constexpr u32 kSimdWidth = 32;
inline constexpr u32 kMaxBuffers = 31;
inline constexpr u32 kMaxThreads = 1024;
inline constexpr usize kThreadgroupBytes = 32 * 1024;

// Every thread of a kernel runs on a stack of its own, aligned to its size. The thread's own
// record lies at the top of it, so that the address of any frame leads there. Stacks that began at
// equal distances would share cache sets: each starts at a distance of its own.
inline constexpr usize kStackBytes = 128 * 1024;
inline constexpr usize kStackColours = 61;
inline constexpr usize kStackColourBytes = 320;

struct Vector3 {
  u32 x, y, z;
};

// The position attributes of MSL.
struct Position {
  Vector3 thread_in_grid, thread_in_threadgroup;
  Vector3 threadgroup_in_grid, threads_per_threadgroup, threadgroups_per_grid, threads_per_grid;
  u32 index_in_threadgroup, simdgroups;
};

struct ConstantValue {
  u64 bits;
  bool defined;
};

struct alignas(32) Slot {
  u8 bytes[32];
};

struct Group;

struct SimdGroup {
  u32 size;       // lanes, 32 but for the last SIMD-group
  u32 unstarted;  // sets of lanes: each lane is in one of these five, or runs
  u32 ready;
  u32 waiting;     // in a SIMD-group function
  u32 at_barrier;  // of the threadgroup
  u32 done;
  u32 phase;  // grows with every SIMD-group function; its parity says which half of `slot` is in use
  u32 active[2];  // the lanes that took part
  // Of the SIMD-group function that lanes wait in.
  void (*combine)(SimdGroup*, u32 half, u32 active);
  struct Lane* lane[kSimdWidth];
  Slot slot[2][kSimdWidth];
  Slot result[2];
};

// One thread of a kernel, while it runs.
struct Lane {
  void* stack_pointer;
  SimdGroup* simdgroup;
  Group* group;
  const ConstantValue* constants;
  u8* threadgroup_memory;  // its end: variables lie below it
  u32 index;               // in its SIMD-group
  u32 simdgroup_index;
  u32 operation;  // the SIMD-group function it waits in
  u32 matrix_operations;
  Position position;
};

inline Lane* lane_of_stack(usize base) {
  const usize colour = base / kStackBytes % kStackColours * kStackColourBytes;
  return reinterpret_cast<Lane*>(base + kStackBytes - colour - (sizeof(Lane) + 63) / 64 * 64);
}
inline __attribute__((always_inline)) Lane* current() {
  return lane_of_stack(reinterpret_cast<usize>(__builtin_frame_address(0)) & ~(kStackBytes - 1));
}

// What the kernels call.
struct Runtime {
  // Waits until every lane of the SIMD-group that can still come is in the same function; the last
  // of them calls `combine` first.
  void (*simd_rendezvous)(Lane*, u32 operation, void (*combine)(SimdGroup*, u32 half, u32 active));
  void (*threadgroup_barrier)(Lane*);
  void (*check_access)(const void* address, usize size, bool write);
};

struct Invocation {
  void* buffer[kMaxBuffers];
  u8* threadgroup[kMaxBuffers];
};
using KernelFunction = void (*)(const Invocation&, const Lane&);

enum class ArgumentKind : u32 { kBuffer, kThreadgroup };

struct Argument {
  ArgumentKind kind;
  u32 index;
  const char* name;
  u32 size;       // of what a reference refers to; 0 for a pointer
  u32 alignment;  // of what it points to
  bool writable;
  bool (*enabled)();  // by function constants; null: always
};

struct Kernel {
  const char* name;
  KernelFunction function;
  const void* identity;  // what its ThreadgroupVariables name
  const Argument* arguments;
  u32 argument_count;
  u32 max_threads;       // 0: not declared
  const u32* constants;  // positions in Module::constants of those it cannot do without
  u32 constant_count;
};

struct FunctionConstant {
  const char* name;
  u32 index;
  u32 data_type;  // an MTLDataType
};

struct ThreadgroupVariable {
  const void* kernel;
  const char* name;
  u32 size, alignment;
  u32 offset;  // below the end of threadgroup memory: the device's to set
};

struct Module {
  u32 abi_version;
  Runtime* runtime;  // a copy for it to fill
  const Kernel* kernels;
  u32 kernel_count;
  const FunctionConstant* constants;
  u32 constant_count;
  ThreadgroupVariable* variables;
  ThreadgroupVariable* variables_end;
};

}  // namespace softmetal
