// Fibers: a stack and saved registers for each thread that waits for another one.
#pragma once
#include "emu_base.h"

#if !defined(EMU_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define EMU_UCONTEXT 1  // swapcontext makes a system call in every switch: 20 times slower
#endif

#ifdef EMU_UCONTEXT
#include <ucontext.h>
#else
// Saves the callee-saved registers on the running stack, stores its pointer, and takes up `to`.
extern "C" __attribute__((visibility("hidden"))) void emu_switch(void** save, void* to);
#if !defined(EMU_MAIN)
#elif defined(__x86_64__)
asm(R"(
.text
.hidden emu_switch
.globl emu_switch
.type emu_switch,@function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch,.-emu_switch
)");
#else
asm(R"(
.text
.hidden emu_switch
.globl emu_switch
.type emu_switch,%function
emu_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8,  d9,  [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8,  d9,  [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size emu_switch,.-emu_switch
)");
#endif
#endif

namespace emu {

#if defined(EMU_ASAN) || defined(EMU_TSAN)
constexpr size_t kStackBytes = 256 * 1024;  // redzones and spills of the instrumentation
#else
constexpr size_t kStackBytes = 128 * 1024;
#endif

struct Fiber {
  char* stack;  // lowest usable byte; the page below it is a guard
#ifdef EMU_UCONTEXT
  ucontext_t context;
#else
  void* sp;
#endif
#ifdef EMU_ASAN
  void* fake_stack;
  const void* bottom;
  size_t bytes;
#endif
};

// Maps `count` stacks and hands them to `fibers`. False: no memory.
EMU_OUTLINE bool fibers_map(Fiber* fibers, int count) {
  const size_t page = (size_t)getpagesize(), step = kStackBytes + page;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* memory = mmap(nullptr, step * (size_t)count, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) return false;
  for (int i = 0; i < count; i++) {
    char* guard = (char*)memory + step * (size_t)i;
    // A stack that overflows must end in a fault, not in its neighbour's variables.
    if (mprotect(guard, page, PROT_NONE)) {
      munmap(memory, step * (size_t)count);
      return false;
    }
    fibers[i].stack = guard + page;
#ifdef EMU_ASAN
    fibers[i].bottom = fibers[i].stack;
    fibers[i].bytes = kStackBytes;
#endif
  }
  return true;
}

// Gives back what one fibers_map() of `count` stacks has mapped.
EMU_OUTLINE void fibers_unmap(Fiber* fibers, int count) {
  const size_t page = (size_t)getpagesize();
  munmap((char*)fibers[0].stack - page, (kStackBytes + page) * (size_t)count);
}

// Makes the fiber start in `entry` at the next switch to it. `colour` shifts the top of the stack
// by some cache lines: stacks lie whole pages apart and would all share the same cache sets.
EMU_NOTSAN inline void fiber_prepare(Fiber* fiber, void (*entry)(), unsigned colour) {
#ifdef EMU_UCONTEXT
  (void)colour;
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack;
  fiber->context.uc_stack.ss_size = kStackBytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, entry, 0);
#else
  void** sp = (void**)(fiber->stack + kStackBytes - colour % 32 * 128);
#if defined(__x86_64__)
  *--sp = nullptr;  // the ABI wants rsp % 16 == 8 at a function's entry
  *--sp = (void*)entry;
  for (int i = 0; i < 6; i++) *--sp = nullptr;
#else
  for (int i = 0; i < 20; i++) *--sp = nullptr;
  sp[11] = (void*)entry;  // x30, the return address
#endif
  fiber->sp = sp;
#endif
#ifdef EMU_ASAN
  fiber->fake_stack = nullptr;
  __asan_unpoison_memory_region(fiber->stack, kStackBytes);
#endif
}

// Leaves `from` for `to`; comes back when somebody switches to `from`. With `ends` nobody will.
EMU_NOTSAN inline void fiber_switch(Fiber* from, Fiber* to, bool ends) {
#ifdef EMU_ASAN
  __sanitizer_start_switch_fiber(ends ? nullptr : &from->fake_stack, to->bottom, to->bytes);
#else
  (void)ends;
#endif
#ifdef EMU_UCONTEXT
  swapcontext(&from->context, &to->context);
#else
  emu_switch(&from->sp, to->sp);
#endif
#ifdef EMU_ASAN
  __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

}  // namespace emu
