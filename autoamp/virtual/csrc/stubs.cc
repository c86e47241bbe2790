#include "stubs.h"

#include "run_kernel.h"

extern "C" {
__attribute__((visibility("hidden"), used)) void vgpu_run_variadic(
    uint32_t slot, vgpu::SavedRegisters* registers) {
  vgpu::RunVariadic(slot, registers);
}
__attribute__((visibility("hidden"), used)) void vgpu_run_context(phi::KernelContext* context,
                                                                  uint32_t slot) {
  vgpu::RunFromContext(context, slot);
}
extern __attribute__((visibility("hidden"))) char vgpu_variadic_stubs[];
extern __attribute__((visibility("hidden"))) char vgpu_context_stubs[];
}

// The .cfi lines describe the frame, so that exceptions thrown by kernels pass through it.
#if defined(__x86_64__)

asm(R"(
  .text
  .p2align 4
  .globl vgpu_variadic_stubs
  .hidden vgpu_variadic_stubs
vgpu_variadic_stubs:
  .set i,0
  .rept 16384
  .p2align 4
  movl $i, %r11d
  jmp vgpu_variadic_common
  .set i,i+1
  .endr
  .p2align 4
  .globl vgpu_context_stubs
  .hidden vgpu_context_stubs
vgpu_context_stubs:
  .set i,0
  .rept 16384
  .p2align 4
  movl $i, %esi
  jmp vgpu_run_context
  .set i,i+1
  .endr
  .p2align 4
  .type vgpu_variadic_common, @function
vgpu_variadic_common:
  .cfi_startproc
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  subq $128, %rsp
  movq %rdi, 0(%rsp)
  movq %rsi, 8(%rsp)
  movq %rdx, 16(%rsp)
  movq %rcx, 24(%rsp)
  movq %r8, 32(%rsp)
  movq %r9, 40(%rsp)
  movsd %xmm0, 48(%rsp)
  movsd %xmm1, 56(%rsp)
  movsd %xmm2, 64(%rsp)
  movsd %xmm3, 72(%rsp)
  movsd %xmm4, 80(%rsp)
  movsd %xmm5, 88(%rsp)
  movsd %xmm6, 96(%rsp)
  movsd %xmm7, 104(%rsp)
  leaq 16(%rbp), %rax
  movq %rax, 112(%rsp)
  movl %r11d, %edi
  movq %rsp, %rsi
  call vgpu_run_variadic
  leave
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .size vgpu_variadic_common, .-vgpu_variadic_common
)");
constexpr int kStubBytes = 16;

#elif defined(__aarch64__)

// x16 is the linker's scratch register: free at any function's entry.
asm(R"(
  .text
  .p2align 3
  .globl vgpu_variadic_stubs
  .hidden vgpu_variadic_stubs
vgpu_variadic_stubs:
  .set i,0
  .rept 16384
  mov w16, #i
  b vgpu_variadic_common
  .set i,i+1
  .endr
  .p2align 3
  .globl vgpu_context_stubs
  .hidden vgpu_context_stubs
vgpu_context_stubs:
  .set i,0
  .rept 16384
  mov w1, #i
  b vgpu_run_context
  .set i,i+1
  .endr
  .p2align 4
  .type vgpu_variadic_common, %function
vgpu_variadic_common:
  .cfi_startproc
  stp x29, x30, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset 29, -16
  .cfi_offset 30, -8
  mov x29, sp
  .cfi_def_cfa_register 29
  sub sp, sp, #144
  stp x0, x1, [sp, #0]
  stp x2, x3, [sp, #16]
  stp x4, x5, [sp, #32]
  stp x6, x7, [sp, #48]
  stp d0, d1, [sp, #64]
  stp d2, d3, [sp, #80]
  stp d4, d5, [sp, #96]
  stp d6, d7, [sp, #112]
  add x9, x29, #16
  str x9, [sp, #128]
  mov w0, w16
  mov x1, sp
  bl vgpu_run_variadic
  mov sp, x29
  .cfi_def_cfa_register 31
  ldp x29, x30, [sp], #16
  .cfi_def_cfa_offset 0
  .cfi_restore 29
  .cfi_restore 30
  ret
  .cfi_endproc
  .size vgpu_variadic_common, .-vgpu_variadic_common
)");
constexpr int kStubBytes = 8;

#else
#error "The virtual accelerator is written for x86-64 and aarch64."
#endif

namespace vgpu {

static_assert(kMaxSlots == 16384, "the .rept counts above");

void* VariadicStub(int slot) { return vgpu_variadic_stubs + kStubBytes * slot; }
void* ContextStub(int slot) { return vgpu_context_stubs + kStubBytes * slot; }

}  // namespace vgpu
