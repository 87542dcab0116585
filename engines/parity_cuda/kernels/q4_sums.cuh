// q4_sums: sums of Q4_0 blocks of R weight rows times M float rows. Contract 1.3, 5.
// The weights of a word become floats once for all M rows, and a read of 16 bytes of inputs serves R
// rows. Products and sums keep to two operands: an instruction of three registers takes two turns of
// the register file.
#pragma once
#include "q4.cuh"

// Floats of a block of inputs: 32 a row, and a pad: lanes with other blocks meet no bank twice.
template <int M>
__device__ __forceinline__ constexpr int q4_pitch() {
  return 32 * M + 4;
}

// The exact tier: pairs, for several inputs side by side. The loop over words is short where M is large:
// code that is longer than the cache of instructions holds is waited for.
template <int R, int M>
__device__ __forceinline__ void q4_many_pairs(float (&s)[R][M], const uint4 (&qs)[R],
                                              const float* x, unsigned magic) {
  constexpr int SOME = M < 4 ? M : 4, UNROLL = M < 4 ? 4 : 1;
  uint4 left[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    left[r] = qs[r];
#pragma unroll
    for (int m = 0; m < M; ++m) s[r][m] = -0.0f;
  }
#pragma unroll UNROLL
  for (int i = 0; i < 4; ++i) {
    float low[R][4], high[R][4];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const unsigned bytes = left[r].x;
      left[r] = make_uint4(left[r].y, left[r].z, left[r].w, left[r].x);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        low[r][e] = q4_weight(bytes & 0x0f0f0f0fu, e, magic, 0);
        high[r][e] = q4_weight(bytes >> 4 & 0x0f0f0f0fu, e, magic, 0);
      }
    }
#pragma unroll
    for (int from = 0; from < M; from += SOME) {
      float a[SOME][4], b[SOME][4];
#pragma unroll
      for (int m = 0; m < SOME; ++m) {
        *(float4*)a[m] = *(const float4*)(x + 4 * i + (from + m) * 32);
        *(float4*)b[m] = *(const float4*)(x + 4 * i + (from + m) * 32 + 16);
      }
      // step 1: pairs (e, e + 16), ascending
#pragma unroll
      for (int r = 0; r < R; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e)
#pragma unroll
          for (int m = 0; m < SOME; ++m) {
            const float first = __fmul_rn(low[r][e], a[m][e]);
            const float pair = __fadd_rn(first, __fmul_rn(high[r][e], b[m][e]));
            s[r][from + m] = __fadd_rn(s[r][from + m], pair);
          }
    }
  }
}

// The sums of a block; x: its inputs, 32 of each row side by side; eights: with zero_point what is taken
// off for each row. Sums start at -0, so that the first addition is none: that a zero has another sign
// than from +0 is not seen in any acc + d * s. With fma it is, where acc is a -0 that a sum vanished to.
template <int R, int M, int FIXED>
__device__ __forceinline__ void q4_many_blocks(float (&s)[R][M], const uint4 (&qs)[R],
                                               const float* x, const float* eights,
                                               unsigned magic) {
  if constexpr (FIXED == 0) {
    q4_many_pairs<R, M>(s, qs, x, magic);
    return;
  }
  constexpr bool SINGLES = q4_one_by_one(FIXED);
  constexpr int UNROLL = FIXED & FMA && FIXED & ZERO_POINT ? 4 : 1;
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int m = 0; m < M; ++m) s[r][m] = FIXED & FMA ? 0.0f : -0.0f;
#pragma unroll
  for (int pass = 0; pass < (SINGLES ? 2 : 1); ++pass)
#pragma unroll UNROLL
    for (int i = 0; i < 4; ++i) {
      unsigned bytes[R];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        bytes[r] = i == 0 ? qs[r].x : i == 1 ? qs[r].y : i == 2 ? qs[r].z : qs[r].w;
        if (SINGLES) bytes[r] = bytes[r] >> 4 * pass & 0x0f0f0f0fu;
      }
      if (SINGLES) {
        q4_singles<R, M>(s, bytes, x + 16 * pass + 4 * i, 32, magic, FIXED);
      } else {
        q4_pairs<R, M>(s, bytes, x + 4 * i, 32, magic, FIXED);
      }
    }
  if (FIXED & ZERO_POINT)
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int m = 0; m < M; ++m) s[r][m] = __fsub_rn(s[r][m], eights[m]);
}
