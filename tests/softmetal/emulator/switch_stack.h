// Leaves one stack for another. x86-64 only.
#pragma once

namespace softmetal {

#ifndef __x86_64__
#error "switch_stack is written for x86-64"
#endif

// Stores where this stack is left in *from, and goes on where `to` was left. Inlined, and left by a
// jump: a call and a return that do not pair would defeat the processor's prediction of returns.
// The file that includes this is compiled with -mno-red-zone.
__attribute__((always_inline)) inline void switch_stack(void** from, void* to) {
  asm volatile(
      "pushq %%rbp\n\t"
      "leaq 1f(%%rip), %%rax\n\t"
      "pushq %%rax\n\t"
      "movq %%rsp, (%%rdi)\n\t"
      "movq %%rsi, %%rsp\n\t"
      "popq %%rax\n\t"
      "jmpq *%%rax\n"
      "1:\n\t"
      "popq %%rbp\n\t"
      : "+D"(from), "+S"(to)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0",
        "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
        "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
}

// A stack that begins at `entry` when it is switched to. `top` is a multiple of 16.
inline void* new_stack(void* top, void (*entry)()) {
  void** at = static_cast<void**>(top);
  *--at = nullptr;  // where a caller's return address would be
  *--at = reinterpret_cast<void*>(entry);
  return at;
}

}  // namespace softmetal
