// Which kernels an x86-64 processor, and the system that saves its registers, can run.
#pragma once

#include <cpuid.h>

namespace mference::cpu {

struct X86Features {
  bool avx2 = false;    // with FMA and F16C
  bool avx512 = false;  // with BW, DQ, VL and VNNI
};

// Asked of the processor itself: __builtin_cpu_supports() needs a runtime library that fills in its
// tables, and zig's says no to everything.
inline X86Features x86_features() {
  constexpr unsigned kYmm = 0x06;
  constexpr unsigned kZmm = 0xe6;
  const auto all = [](unsigned word, unsigned bits) { return (word & bits) == bits; };
  X86Features found;
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return found;
  if (!all(ecx, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C)) return found;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return found;
  unsigned saved, upper;
  asm("xgetbv" : "=a"(saved), "=d"(upper) : "c"(0));
  found.avx2 = all(saved, kYmm) && all(ebx, bit_AVX2);
  found.avx512 = found.avx2 && all(saved, kZmm) && all(ecx, bit_AVX512VNNI) &&
                 all(ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL);
  return found;
}

}  // namespace mference::cpu
