// What the generated entry points of kernels use.
#pragma once

#include "target.h"

namespace msl {

template <class F>
struct signature;
template <class... A>
struct signature<void (*)(A...)> {
  template <int i>
  using parameter = __type_pack_element<i, A...>;
};

// A kernel's parameter from where it is bound.
template <class T>
struct bound;
template <class T>
struct bound<T*> {
  typedef __remove_cv(T) target;
  static constexpr uint size = 0;
  static constexpr bool writable = !__is_const(T);
  static MSL_INLINE T* from(void* pointer) { return (T*)pointer; }
};
template <class T>
struct bound<T&> {
  typedef __remove_cv(T) target;
  static constexpr uint size = sizeof(T);
  static constexpr bool writable = !__is_const(T);
  static MSL_INLINE T& from(void* pointer) { return *(T*)pointer; }
};
template <class T>
constexpr uint alignment = alignof(typename bound<T>::target);
template <>
constexpr uint alignment<void*> = 1;

template <class T>
struct position_type {
  typedef metal::element_t<T> element;
  static_assert(metal::is_same_v<element, uint> || metal::is_same_v<element, ushort>,
                "position attributes are uint or ushort, or vectors of them");
};

#ifdef __NVPTX__
struct Vector3 {
  uint x, y, z;
};
struct Position {
  Vector3 thread_in_grid, thread_in_threadgroup;
  Vector3 threadgroup_in_grid, threads_per_threadgroup, threadgroups_per_grid, threads_per_grid;
  uint index_in_threadgroup, simdgroups;
};
// The one argument of every entry: addresses by buffer index, offsets of dynamic threadgroup arrays
// in shared memory, and the threads of the grid.
struct Arguments {
  void* buffer[31];
  uint threadgroup[8];
  uint threads_per_grid[3];
};
struct ConstantValue {
  unsigned long long bits;
  bool defined;
};
MSL_INLINE Position position(const Arguments& arguments) {
  const Vector3 t = {(uint)__nvvm_read_ptx_sreg_tid_x(), (uint)__nvvm_read_ptx_sreg_tid_y(),
                     (uint)__nvvm_read_ptx_sreg_tid_z()};
  const Vector3 n = {(uint)__nvvm_read_ptx_sreg_ntid_x(), (uint)__nvvm_read_ptx_sreg_ntid_y(),
                     (uint)__nvvm_read_ptx_sreg_ntid_z()};
  const Vector3 g = {(uint)__nvvm_read_ptx_sreg_ctaid_x(), (uint)__nvvm_read_ptx_sreg_ctaid_y(),
                     (uint)__nvvm_read_ptx_sreg_ctaid_z()};
  const Vector3 groups = {(uint)__nvvm_read_ptx_sreg_nctaid_x(),
                          (uint)__nvvm_read_ptx_sreg_nctaid_y(),
                          (uint)__nvvm_read_ptx_sreg_nctaid_z()};
  return {
      {g.x * n.x + t.x, g.y * n.y + t.y, g.z * n.z + t.z},
      t,
      g,
      n,
      groups,
      {arguments.threads_per_grid[0], arguments.threads_per_grid[1], arguments.threads_per_grid[2]},
      t.x + n.x * (t.y + n.y * t.z),
      (n.x * n.y * n.z + 31) / 32};
}
#else
using softmetal::ConstantValue;
using softmetal::Vector3;
#endif

template <class T>
MSL_INLINE T position_value(Vector3 value) {
  typedef typename position_type<T>::element E;
  if constexpr (metal::vector_size_v<T> == 1) {
    return (T)value.x;
  } else if constexpr (metal::vector_size_v<T> == 2) {
    return T{(E)value.x, (E)value.y};
  } else {
    return T{(E)value.x, (E)value.y, (E)value.z};
  }
}
template <class T>
MSL_INLINE T position_value(uint value) {
  typedef typename position_type<T>::element E;
  return (T)(E)value;
}

// The value of a function constant.
template <class T>
MSL_INLINE T constant_value(const ConstantValue& value) {
  T result;
  __builtin_memcpy(&result, &value.bits, sizeof(T));
  return result;
}

}  // namespace msl

// Function constants: of the running lane's pipeline, or of the loaded module, whose host sets them.
#ifdef __NVPTX__
#define MSL_PTX_CONSTANTS(count)                                                              \
  extern "C"                                                                                  \
      __attribute__((address_space(4), used)) msl::ConstantValue msl_constant_values[count];  \
  __attribute__((address_space(4), used)) msl::ConstantValue msl_constant_values[count] = {}; \
  MSL_INLINE const msl::ConstantValue* msl_constants() {                                      \
    return (const msl::ConstantValue*)msl_constant_values;                                    \
  }
#else
MSL_INLINE const msl::ConstantValue* msl_constants() {
  return softmetal::current()->constants;
}
#endif

// A reference to a threadgroup variable of type name_msl_type; what follows names its kernel.
#if defined(__NVPTX__)
#define MSL_THREADGROUP_VARIABLE(name, ...)                       \
  static __attribute__((address_space(3), loader_uninitialized,   \
                        aligned(16))) name##_msl_type name##_msl; \
  name##_msl_type& name = *(name##_msl_type*)(&name##_msl)
#elif defined(MSL_STRICT)
#define MSL_THREADGROUP_VARIABLE(name, ...) \
  MSL_THREADGROUP name##_msl_type& name = *(MSL_THREADGROUP name##_msl_type*)nullptr
#else
#define MSL_THREADGROUP_VARIABLE(name, ...)                                                     \
  static __attribute__((section("softmetal_variables"),                                         \
                        used)) softmetal::ThreadgroupVariable name##_msl = {                    \
      (const void*)(__VA_ARGS__), #name, sizeof(name##_msl_type), alignof(name##_msl_type), 0}; \
  name##_msl_type& name =                                                                       \
      *(name##_msl_type*)(softmetal::current()->threadgroup_memory - name##_msl.offset)
#endif

#ifdef MSL_CHECKED
#define MSL_BARE __attribute__((disable_sanitizer_instrumentation, visibility("hidden")))
extern "C" {
#define MSL_CHECKS(size)                                                                         \
  MSL_BARE inline __attribute__((used)) void __asan_load##size##_noabort(const void* address) {  \
    softmetal_runtime.check_access(address, size, false);                                        \
  }                                                                                              \
  MSL_BARE inline __attribute__((used)) void __asan_store##size##_noabort(const void* address) { \
    softmetal_runtime.check_access(address, size, true);                                         \
  }
MSL_CHECKS(1)
MSL_CHECKS(2)
MSL_CHECKS(4)
MSL_CHECKS(8)
MSL_CHECKS(16)
#undef MSL_CHECKS
MSL_BARE inline __attribute__((used)) void __asan_loadN_noabort(const void* address, size_t size) {
  softmetal_runtime.check_access(address, size, false);
}
MSL_BARE inline __attribute__((used)) void __asan_storeN_noabort(const void* address, size_t size) {
  softmetal_runtime.check_access(address, size, true);
}
MSL_BARE inline __attribute__((used)) void* __asan_memcpy(void* to, const void* from, size_t size) {
  softmetal_runtime.check_access(from, size, false);
  softmetal_runtime.check_access(to, size, true);
  return __builtin_memcpy(to, from, size);
}
MSL_BARE inline __attribute__((used)) void* __asan_memmove(void* to, const void* from,
                                                           size_t size) {
  softmetal_runtime.check_access(from, size, false);
  softmetal_runtime.check_access(to, size, true);
  return __builtin_memmove(to, from, size);
}
MSL_BARE inline __attribute__((used)) void* __asan_memset(void* to, int byte, size_t size) {
  softmetal_runtime.check_access(to, size, true);
  return __builtin_memset(to, byte, size);
}
MSL_BARE inline __attribute__((used)) void __asan_handle_no_return() {}
}
#endif
