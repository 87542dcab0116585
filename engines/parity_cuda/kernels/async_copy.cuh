// async_copy: copies from global to shared memory that do not wait. They change no bit.
// A thread's copies are grouped: copy_commit() closes a group, copy_wait<N>() waits until all but
// the last N groups of this thread are there. A barrier must follow before another thread reads.
// Where the hardware has no such copy (emulated, before sm_80) they are plain copies.
// Each asm has an #ifndef of its own around it: that alone tells the emulator to leave it out.
#pragma once

#ifndef __CUDA_EMU__
#if __CUDA_ARCH__ >= 800
#define HARDWARE_COPY 1
#endif
#endif

// 16 bytes, both ends aligned to 16.
__device__ __forceinline__ void copy_16(void* to, const void* from) {
#ifndef __CUDA_EMU__
#ifdef HARDWARE_COPY
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(to)),
               "l"(from)
               : "memory");
  return;
#endif
#endif
  *(float4*)to = *(const float4*)from;
}

// The same where it is `there`; else nothing is read, and zeros are put.
__device__ __forceinline__ void copy_16_or_zeros(void* to, const void* from, bool there) {
#ifndef __CUDA_EMU__
#ifdef HARDWARE_COPY
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(to)),
               "l"(from), "r"(there ? 16 : 0)
               : "memory");
  return;
#endif
#endif
  *(float4*)to = there ? *(const float4*)from : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

// 4 bytes.
__device__ __forceinline__ void copy_4(float* to, const float* from) {
#ifndef __CUDA_EMU__
#ifdef HARDWARE_COPY
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(to)),
               "l"(from)
               : "memory");
  return;
#endif
#endif
  *to = *from;
}

// 8 bytes, both ends aligned to 8.
__device__ __forceinline__ void copy_8(void* to, const void* from) {
#ifndef __CUDA_EMU__
#ifdef HARDWARE_COPY
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(to)),
               "l"(from)
               : "memory");
  return;
#endif
#endif
  *(float2*)to = *(const float2*)from;
}

// 2 bytes at a multiple of 2: what is copied is the word of 4 that they stand in, which leaves them at
// copied_half() of where it is put; of no other page is anything read.
__device__ __forceinline__ int copied_half(int to, const unsigned short* from) {
  return to + (int)((size_t)from & 2);
}

__device__ __forceinline__ void copy_half(unsigned char* to, const unsigned short* from) {
#ifndef __CUDA_EMU__
#ifdef HARDWARE_COPY
  copy_4((float*)to, (const float*)((size_t)from & ~(size_t)3));
  return;
#endif
#endif
  *(unsigned short*)(to + copied_half(0, from)) = *from;
}

__device__ __forceinline__ void copy_commit() {
#ifndef __CUDA_EMU__
#ifdef HARDWARE_COPY
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
#endif
}

template <int LEFT>
__device__ __forceinline__ void copy_wait() {
#ifndef __CUDA_EMU__
#ifdef HARDWARE_COPY
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
#endif
}

// Asks for the line of an address; it reads nothing.
__device__ __forceinline__ void prefetch_line(const void* from) {
#ifndef __CUDA_EMU__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#endif
}

// The same, into the first cache.
__device__ __forceinline__ void prefetch_near(const void* from) {
#ifndef __CUDA_EMU__
  asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
#endif
}

// 16 bytes that are read once: they leave the first cache to what is read again.
__device__ __forceinline__ uint4 load_once(const void* from) {
#ifndef __CUDA_EMU__
  uint4 word;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "l"(from));
  return word;
#else
  return __ldcs((const uint4*)from);
#endif
}
