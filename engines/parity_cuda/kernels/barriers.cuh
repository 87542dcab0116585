// barriers: some warps of a block wait for others, by number (1 to 15; 0 is __syncthreads). They order
// memory of the block as __syncthreads does. Threads count by whole warps, and all lanes of a warp call:
// the instruction itself brings them together.
#pragma once

// Waits until `threads` threads have come, those that only arrive among them.
__device__ __forceinline__ void barrier_sync(int number, int threads) {
#ifdef __CUDA_EMU__
  emu_barrier_sync(number, threads);
#else
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
#endif
}

// Comes and goes on.
__device__ __forceinline__ void barrier_arrive(int number, int threads) {
#ifdef __CUDA_EMU__
  emu_barrier_arrive(number, threads);
#else
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
#endif
}
