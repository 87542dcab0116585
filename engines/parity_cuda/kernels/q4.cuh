// q4: reading Q4_0 blocks. Contract 1.0, 1.3, 1.4.
#pragma once
#include "variants.cuh"

#define Q4_MAGIC 0x4b000000u  // the bits of 2^23

// The float32 with the value of a finite f16 given by its bits; exact, subnormals too.
__device__ __forceinline__ float half_to_f32(unsigned short bits) {
  // step 1: exponent and mantissa into place, then an exact scaling by 2^112
  const float magnitude =
      __fmul_rn(__uint_as_float((unsigned)(bits & 0x7fff) << 13), 5.192296858534828e33f);
  // step 2: the sign
  return bits & 0x8000 ? -magnitude : magnitude;
}

// The same by the one instruction that the device has for it.
__device__ __forceinline__ float q4_scale(unsigned short bits) {
#ifndef __CUDA_EMU__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  return half_to_f32(bits);
#endif
}

// Whether a block's weights are added one by one, and not in pairs.
__device__ __forceinline__ constexpr bool q4_one_by_one(int variants) {
  return (variants & (UNPAIRED | ZERO_POINT)) != 0;
}

// nibble - 8 of byte e of a word that has one nibble a byte, with zero_point the nibble: 2^23 + nibble
// by its bits, less 2^23 and 8, all exact. A magic that is a literal costs one instruction more for each
// weight.
__device__ __forceinline__ float q4_weight(unsigned nibbles, int e, unsigned magic, int variants) {
  const float less = variants & ZERO_POINT ? 8388608.0f : 8388616.0f;
  return __fsub_rn(__uint_as_float(__byte_perm(nibbles, magic, 0x7440 + e)), less);
}

// What zero_point takes off the sum of a block: 8 times its 32 inputs, added ascending.
__device__ __forceinline__ float q4_eight_inputs(const float* x) {
  float total = 0.0f;
#pragma unroll
  for (int j = 0; j < 32; j += 4) {
    const float4 four = *(const float4*)(x + j);
    total = __fadd_rn(__fadd_rn(total, four.x), four.y);
    total = __fadd_rn(__fadd_rn(total, four.z), four.w);
  }
  return __fmul_rn(total, 8.0f);
}

// Four bytes of each of R rows, times the inputs of M rows: adds to the block sums s.
// x: element 4 * word of a block of 32; a row of inputs starts every `stride` floats.
template <int R, int M>
__device__ __forceinline__ void q4_pairs(float (&s)[R][M], const unsigned (&bytes)[R],
                                         const float* x, int stride, unsigned magic,
                                         int variants) {
  float low[R][4], high[R][4];
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      low[r][e] = q4_weight(bytes[r] & 0x0f0f0f0fu, e, magic, variants);
      high[r][e] = q4_weight(bytes[r] >> 4 & 0x0f0f0f0fu, e, magic, variants);
    }
  // step 1: pairs (e, e + 16), ascending
#pragma unroll
  for (int m = 0; m < M; ++m) {
    const float4 x0 = *(const float4*)(x + m * stride), x1 = *(const float4*)(x + m * stride + 16);
    const float a[4] = {x0.x, x0.y, x0.z, x0.w}, b[4] = {x1.x, x1.y, x1.z, x1.w};
#pragma unroll
    for (int e = 0; e < 4; ++e)
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const float second = __fmul_rn(high[r][e], b[e]);
        s[r][m] = __fadd_rn(s[r][m], product_sum(low[r][e], a[e], second, variants));
      }
  }
}

// One nibble of each byte of a word, strictly ascending: x[0..3] are its inputs.
template <int R, int M>
__device__ __forceinline__ void q4_singles(float (&s)[R][M], const unsigned (&nibbles)[R],
                                           const float* x, int stride, unsigned magic,
                                           int variants) {
  float w[R][4];
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int e = 0; e < 4; ++e) w[r][e] = q4_weight(nibbles[r], e, magic, variants);
#pragma unroll
  for (int m = 0; m < M; ++m) {
    const float4 x0 = *(const float4*)(x + m * stride);
    const float a[4] = {x0.x, x0.y, x0.z, x0.w};
#pragma unroll
    for (int e = 0; e < 4; ++e)
#pragma unroll
      for (int r = 0; r < R; ++r) s[r][m] = product_sum(w[r][e], a[e], s[r][m], variants);
  }
}

// 32 int16 in the registers of a lane.
struct Int16Block {
  int q[16];
  int less;  // what a nibble in the low half of a byte counts too much, over all of them

  __device__ Int16Block(const int* from) {
    less = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int4 four = *(const int4*)(from + 4 * i);
      q[4 * i] = four.x, q[4 * i + 1] = four.y, q[4 * i + 2] = four.z, q[4 * i + 3] = four.w;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) less = __dp2a_lo(q[i], 0xf8f8, less);
  }

  // Exact integer dot of contract 1.4. A nibble in the high half of a byte, its highest bit flipped, is
  // 16 * (nibble - 8) as a signed byte; one in the low half is 8 too much, which `less` takes away.
  // |sum| <= 16 * 128 * 32767 < 2^31. flip: 0x80808080; a literal costs one instruction more a word.
  __device__ int dot(uint4 qs, unsigned flip) const {
    // step 1: low and high nibbles, any order
    const unsigned word[4] = {qs.x, qs.y, qs.z, qs.w};
    int low = less, high = 0;
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      const int bytes0 = (int)(word[g] & 0x0f0f0f0fu);
      const int bytes1 = (int)(word[g] & 0xf0f0f0f0u ^ flip);
      low = __dp2a_lo(q[2 * g], bytes0, low);
      high = __dp2a_lo(q[8 + 2 * g], bytes1, high);
      low = __dp2a_hi(q[2 * g + 1], bytes0, low);
      high = __dp2a_hi(q[9 + 2 * g], bytes1, high);
    }
    return low + (high >> 4);
  }
};
