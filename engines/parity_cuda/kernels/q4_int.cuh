// q4_int: Q4_0 blocks times int16 blocks. Contract 1.4.
#pragma once
#include "async_copy.cuh"
#include "q4.cuh"

#define INPUT_PITCH 20  // words of a block of 32 int16 and its padding: lanes meet no bank twice

// Floats between the terms of two rows of nb blocks: 16 bytes at a time meet no bank twice.
__device__ __forceinline__ int terms_stride(int nb) { return ((nb + 3) / 4 | 1) * 4; }

// What the high halves of bytes are flipped by: nb is positive, and a literal costs an instruction a
// word.
__device__ __forceinline__ unsigned high_flip(int nb) { return 0x80808080u | (unsigned)nb >> 31; }

// A block's term: step 2, (dot * s_w) * s_a.
__device__ __forceinline__ float block_term(const Int16Block& x, uint4 word, unsigned short d,
                                            float s_a, unsigned flip, int variants) {
  return scaled_dot(x.dot(word, flip), q4_scale(d), s_a, variants);
}

// Copies nb blocks of int16 and their scales, by `count` threads from number `me` on; copy_commit
// and copy_wait are the caller's.
__device__ __forceinline__ void stage_int16(int* input, float* scales, const short* q,
                                            const float* s_a, int nb, int me, int count) {
#pragma unroll 2
  for (int i = me; i < nb * 4; i += count)
    copy_16((float*)(input + i / 4 * INPUT_PITCH + i % 4 * 4), (const float*)q + i * 4);
#pragma unroll 1
  for (int i = me; i < nb; i += count) copy_4(scales + i, s_a + i);
}
