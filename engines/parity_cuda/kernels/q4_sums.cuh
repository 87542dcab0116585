// q4_sums: sums of Q4_0 blocks of four weight rows times M float rows. Contract 1.3, 5.
// The weights of a word become floats once for all M rows, and a read of 16 bytes of inputs serves all
// weight rows. Products and sums keep to two operands: an instruction of three registers takes two turns
// of the register file.
#pragma once
#include "chain.cuh"
#include "q4.cuh"

#define MANY_ROWS 4    // weight rows that are worked on together
#define MANY_SLAB 512  // bytes from the weights of one of them to those of the next

// Floats of a block of inputs: 32 a row, and a pad: lanes with other blocks meet no bank twice.
template <int M>
__device__ __forceinline__ constexpr int q4_pitch() {
  return 32 * M + 4;
}

// nibble - 8 of the bits `mask` of a word, which are put below a power of two, `magic`; less: that power
// and 8. All exact.
__device__ __forceinline__ float q4_between(unsigned word, unsigned mask, unsigned magic, float less) {
  return __fsub_rn(__uint_as_float((word & mask) | magic), less);
}

// The eight weights of a word: low nibbles, then high ones. zero: 0, as no compiler can see; magics that
// are literals cost one instruction more for each weight.
__device__ __forceinline__ void q4_word(float (&low)[4], float (&high)[4], unsigned word, unsigned zero) {
  const unsigned far = word >> 12;
  const unsigned at0 = 0x4b000000u + zero, at4 = 0x49000000u + zero, at8 = 0x47000000u + zero;
  const unsigned at12 = 0x45000000u + zero, at16 = 0x43000000u + zero;
  low[0] = q4_between(word, 0xfu, at0, 8388616.0f);  // 2^23 + 8
  high[0] = q4_between(word, 0xf0u, at4, 524296.0f);
  low[1] = q4_between(word, 0xf00u, at8, 32776.0f);
  high[1] = q4_between(word, 0xf000u, at12, 2056.0f);
  low[2] = q4_between(word, 0xf0000u, at16, 136.0f);
  high[2] = q4_between(far, 0xf00u, at8, 32776.0f);
  low[3] = q4_between(far, 0xf000u, at12, 2056.0f);
  high[3] = q4_between(far, 0xf0000u, at16, 136.0f);
}

// The exact tier: pairs (e, e + 16), ascending. Rows from the third on are left out where they are not
// there. Sums start at -0, so that the first addition is none: that a zero has another sign than from +0
// is not seen in any acc + d * s. acc: a chain that goes on over 32 values of `chain` meanwhile.
template <int M>
__device__ __forceinline__ void q4_many_pairs(float (&s)[MANY_ROWS][M], float& acc,
                                              const unsigned char* words, int height,
                                              const float* x, const float* chain, unsigned zero) {
  constexpr int UNROLL = M < 4 ? 4 : 1;  // short code where M is large
  unsigned word[MANY_ROWS];
#pragma unroll
  for (int r = 0; r < MANY_ROWS; ++r) {
    word[r] = *(const unsigned*)(words + r * MANY_SLAB);
#pragma unroll
    for (int m = 0; m < M; ++m) s[r][m] = -0.0f;
  }
#pragma unroll UNROLL
  for (int i = 0; i < 4; ++i) {
    float low[MANY_ROWS][4], high[MANY_ROWS][4], a[M][4], b[M][4];
    const float4* eight = (const float4*)chain + 2 * i;
    acc = add_four(add_four(acc, eight[0]), eight[1]);
#pragma unroll
    for (int m = 0; m < M; ++m) {
      *(float4*)a[m] = *(const float4*)(x + 4 * i + m * 32);
      *(float4*)b[m] = *(const float4*)(x + 4 * i + m * 32 + 16);
    }
#pragma unroll
    for (int r = 0; r < MANY_ROWS; ++r) {
      q4_word(low[r], high[r], word[r], zero);
      word[r] = *(const unsigned*)(words + r * MANY_SLAB + (i + 1) % 4 * 4);  // on its way early
    }
#pragma unroll
    for (int r = 0; r < MANY_ROWS; ++r) {
      if (r >= 2 && r >= height) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int m = 0; m < M; ++m) {
          const float first = __fmul_rn(low[r][e], a[m][e]);
          s[r][m] = __fadd_rn(s[r][m], __fadd_rn(first, __fmul_rn(high[r][e], b[m][e])));
        }
    }
  }
}

// The fast tier: nibbles as they are, each an fma, strictly ascending. eights: what is taken off.
template <int M>
__device__ __forceinline__ void q4_many_nibbles(float (&s)[MANY_ROWS][M], const unsigned char* words,
                                                const float* x, const float* eights, unsigned zero) {
#pragma unroll
  for (int r = 0; r < MANY_ROWS; ++r)
#pragma unroll
    for (int m = 0; m < M; ++m) s[r][m] = 0.0f;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    unsigned nibbles[MANY_ROWS];
#pragma unroll
    for (int r = 0; r < MANY_ROWS; ++r)
      nibbles[r] = *(const unsigned*)(words + r * MANY_SLAB + i % 4 * 4) >> i / 4 * 4 & 0x0f0f0f0fu;
    q4_singles<MANY_ROWS, M>(s, nibbles, x + 4 * i, 32, Q4_MAGIC + zero, FMA | ZERO_POINT);
  }
#pragma unroll
  for (int r = 0; r < MANY_ROWS; ++r)
#pragma unroll
    for (int m = 0; m < M; ++m) s[r][m] = __fsub_rn(s[r][m], eights[m]);
}

// The sum of one block with any mask, word by word; x: 32 inputs.
__device__ __forceinline__ float q4_other_block(const unsigned char* words, const float* x,
                                                unsigned zero, int variants) {
  const bool singles = q4_one_by_one(variants);
  float s[1][1] = {{0.0f}};
#pragma unroll 1
  for (int i = 0; i < (singles ? 8 : 4); ++i) {
    const unsigned word = *(const unsigned*)(words + i % 4 * 4);
    if (singles) {
      const unsigned nibbles[1] = {word >> i / 4 * 4 & 0x0f0f0f0fu};
      q4_singles<1, 1>(s, nibbles, x + 4 * i, 0, Q4_MAGIC + zero, variants);
    } else {
      const unsigned bytes[1] = {word};
      q4_pairs<1, 1>(s, bytes, x + 4 * i, 0, Q4_MAGIC + zero, variants);
    }
  }
  return variants & ZERO_POINT ? __fsub_rn(s[0][0], q4_eight_inputs(x)) : s[0][0];
}
