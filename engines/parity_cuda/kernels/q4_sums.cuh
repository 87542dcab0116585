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

// The sums of a block; x: its inputs, 32 of each row side by side. Sums start at -0, so that the first
// addition is none: that a zero has another sign than from +0 is not seen in any acc + d * s.
template <int R, int M, int FIXED>
__device__ __forceinline__ void q4_many_blocks(float (&s)[R][M], const uint4 (&qs)[R],
                                               const float* x, unsigned magic) {
  constexpr int UNROLL = FIXED == 0 || FIXED == (FMA | UNPAIRED) ? 4 : 1;
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int m = 0; m < M; ++m) s[r][m] = -0.0f;
#pragma unroll
  for (int pass = 0; pass < (FIXED & UNPAIRED ? 2 : 1); ++pass)
#pragma unroll UNROLL
    for (int i = 0; i < 4; ++i) {
      unsigned bytes[R];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        bytes[r] = i == 0 ? qs[r].x : i == 1 ? qs[r].y : i == 2 ? qs[r].z : qs[r].w;
        if (FIXED & UNPAIRED) bytes[r] = bytes[r] >> 4 * pass & 0x0f0f0f0fu;
      }
      if (FIXED & UNPAIRED) {
        q4_singles<R, M>(s, bytes, x + 16 * pass + 4 * i, 32, magic, FIXED);
      } else {
        q4_pairs<R, M>(s, bytes, x + 4 * i, 32, magic, FIXED);
      }
    }
}
