// The five things that SIMD-group functions are made of, for the emulator and for NVIDIA: lane,
// barriers, exchange (every lane shows a value and sees another lane's), reduce.
#pragma once

#include "vector.h"

#ifndef __NVPTX__
#include "emulator/abi.h"
extern "C" {
__attribute__((visibility("hidden"))) extern softmetal::Runtime softmetal_runtime;
// What clang calls to convert to bfloat, which older libgcc do not have.
__attribute__((visibility("hidden"), used)) inline bfloat __truncsfbf2(float x) {
  return metal::round_to_bfloat(x);
}
__attribute__((visibility("hidden"), used)) inline bfloat __truncdfbf2(double x) {
  return metal::round_to_bfloat((float)x);
}
}
#endif

namespace metal {

enum class mem_flags : uint {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
};
MSL_INLINE constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return (mem_flags)((uint)a | (uint)b);
}

}  // namespace metal

namespace msl {

// What a SIMD-group function does, so that lanes in different ones are told apart.
enum class Operation : uint {
  kBarrier,
  kSum,
  kProduct,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kShuffle,
  kShuffleUp,
  kShuffleDown,
  kShuffleXor,
  kShuffleRotate,
  kBroadcast,
  kBroadcastFirst,
  kExclusive,
  kInclusive,
  kQuad,
};

#ifdef __NVPTX__

MSL_INLINE uint thread_index() {
  return __nvvm_read_ptx_sreg_tid_x() +
         __nvvm_read_ptx_sreg_ntid_x() *
             (__nvvm_read_ptx_sreg_tid_y() +
              __nvvm_read_ptx_sreg_ntid_y() * __nvvm_read_ptx_sreg_tid_z());
}
MSL_INLINE uint lane() {
  return thread_index() & 31;
}
MSL_INLINE void threadgroup_barrier() {
  __nvvm_bar_sync(0);
}
MSL_INLINE void simdgroup_barrier() {
  __nvvm_bar_warp_sync(0xffffffffu);
}
// Lanes that took different ways meet here: all 32 come, since kernels call SIMD-group functions in
// uniform control flow. Which lanes are active at a place is the hardware's choice, and says nothing.
template <class T>
MSL_INLINE T shuffle(T value, uint source) {
  constexpr uint words = (sizeof(T) + 3) / 4;
  int word[words] = {};
  __builtin_memcpy(word, &value, sizeof(T));
  for (uint i = 0; i < words; ++i) {
    word[i] = __nvvm_shfl_sync_idx_i32(0xffffffffu, word[i], source, 31);
  }
  __builtin_memcpy(&value, word, sizeof(T));
  return value;
}

template <class T>
struct Exchange {
  T value;
  MSL_INLINE uint active() const { return 0xffffffffu; }
  MSL_INLINE T from(uint source) const { return shuffle(value, source & 31); }
  // Every lane asks here at the same time, but some have nobody to ask.
  MSL_INLINE T from_or(uint source, T otherwise) const {
    const T other = shuffle(value, source & 31);
    return source < 32 ? other : otherwise;
  }
};
template <Operation, class T>
MSL_INLINE Exchange<T> exchange(T value) {
  return {value};
}

template <Operation, class Function, class T>
MSL_INLINE T reduce(T value) {
  for (uint distance = 16; distance > 0; distance /= 2) {
    value = Function::of(value, shuffle(value, lane() ^ distance));
  }
  return value;
}

MSL_INLINE void fence() {
  __nvvm_membar_gl();
}

#else

using softmetal::Lane;
using softmetal::SimdGroup;
using softmetal::Slot;

MSL_INLINE uint lane() {
  return softmetal::current()->index;
}
MSL_INLINE void threadgroup_barrier() {
  softmetal_runtime.threadgroup_barrier(softmetal::current());
}
MSL_INLINE void simdgroup_barrier() {
  softmetal_runtime.simd_rendezvous(softmetal::current(), (uint)Operation::kBarrier, nullptr);
}

template <class T>
MSL_INLINE T load(const Slot& slot) {
  T value;
  __builtin_memcpy(&value, slot.bytes, sizeof(T));
  return value;
}
template <class T>
MSL_INLINE void store(Slot& slot, T value) {
  static_assert(sizeof(T) <= sizeof(Slot), "SIMD-group functions take scalars and vectors");
  __builtin_memcpy(slot.bytes, &value, sizeof(T));
}

// Different for different functions, and for one function of values of different sizes.
template <class T>
constexpr uint code(Operation operation) {
  return (uint)operation << 8 | (uint)sizeof(T);
}

template <class T>
struct Exchange {
  const SimdGroup* simdgroup;
  uint half;
  T own;
  MSL_INLINE uint active() const { return simdgroup->active[half]; }
  MSL_INLINE T from(uint source) const { return load<T>(simdgroup->slot[half][source & 31]); }
  MSL_INLINE T from_or(uint source, T otherwise) const {
    return source < 32 && (active() >> source & 1) != 0 ? from(source) : otherwise;
  }
};
template <Operation operation, class T>
MSL_INLINE Exchange<T> exchange(T value) {
  Lane* lane = softmetal::current();
  SimdGroup* simdgroup = lane->simdgroup;
  const uint half = simdgroup->phase & 1;
  store(simdgroup->slot[half][lane->index], value);
  softmetal_runtime.simd_rendezvous(lane, code<T>(operation), nullptr);
  return {simdgroup, half, value};
}

// A tree over the active lanes: pairs at distance 16, then 8, and so on.
template <class Function, class T>
void combine(SimdGroup* simdgroup, uint half, uint active) {
  T value[32];
  for (uint i = 0; i < 32; ++i) value[i] = load<T>(simdgroup->slot[half][i]);
  if (active == 0xffffffffu) {
    for (uint distance = 16; distance > 0; distance /= 2) {
      for (uint i = 0; i < distance; ++i) value[i] = Function::of(value[i], value[i + distance]);
    }
  } else {
    for (uint distance = 16; distance > 0; distance /= 2) {
      for (uint i = 0; i < distance; ++i) {
        const bool here = active >> i & 1, there = active >> (i + distance) & 1;
        if (there)
          value[i] = here ? Function::of(value[i], value[i + distance]) : value[i + distance];
        if (there) active |= 1u << i;
      }
    }
  }
  store(simdgroup->result[half], value[0]);
}
template <Operation operation, class Function, class T>
MSL_INLINE T reduce(T value) {
  Lane* lane = softmetal::current();
  SimdGroup* simdgroup = lane->simdgroup;
  const uint half = simdgroup->phase & 1;
  store(simdgroup->slot[half][lane->index], value);
  softmetal_runtime.simd_rendezvous(lane, code<T>(operation), combine<Function, T>);
  return load<T>(simdgroup->result[half]);
}

MSL_INLINE void fence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#endif

}  // namespace msl
