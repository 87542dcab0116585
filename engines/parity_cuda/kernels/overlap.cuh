// overlap: a launch that begins before the one ahead of it has ended (programmatic dependent launch).
// A kernel launched so may read weights alone until it has waited: no kernel of a step writes them.
// Every thread waits, on every path: a launch that did not would let the next one overtake this one's
// past. Launched plainly, before sm_90, or emulated, both calls do nothing.
// Each asm has an #ifndef of its own around it: that alone tells the emulator to leave it out.
#pragma once

#ifndef __CUDA_EMU__
#if __CUDA_ARCH__ >= 900
#define HARDWARE_OVERLAP 1
#endif
#endif

// All that earlier launches wrote is visible after this.
__device__ __forceinline__ void wait_for_previous() {
#ifndef __CUDA_EMU__
#ifdef HARDWARE_OVERLAP
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
#endif
}

// The next launch may begin. Right after the wait: whatever was there before this launch is complete
// by then, and the next one waits for this. Before the wait only where the next one is known to read
// nothing of the launch ahead of this one until it has waited (sigmoid_gate.cu).
__device__ __forceinline__ void let_next_start() {
#ifndef __CUDA_EMU__
#ifdef HARDWARE_OVERLAP
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
#endif
}
