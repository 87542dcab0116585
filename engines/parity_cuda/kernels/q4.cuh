// q4: reading Q4_0 blocks. Contract 1.0, 1.3, 1.4.
#pragma once
#include "variants.cuh"

// The float32 with the value of a finite f16 given by its bits; exact, subnormals too.
__device__ __forceinline__ float half_to_f32(unsigned short bits) {
  // step 1: exponent and mantissa into place, then an exact scaling by 2^112
  const float magnitude =
      __fmul_rn(__uint_as_float((unsigned)(bits & 0x7fff) << 13), 5.192296858534828e33f);
  // step 2: the sign
  return bits & 0x8000 ? -magnitude : magnitude;
}

// Block sum of contract 1.3: 16 bytes of weights times x[0..31].
__device__ __forceinline__ float q4_block(const unsigned char* qs, const float* x) {
  // step 1: pairs (e, e + 16), ascending
  float s = 0.0f;
  for (int e = 0; e < 16; ++e) {
    const int byte = qs[e];
    const float low = (float)((byte & 15) - 8);
    const float high = (float)((byte >> 4) - 8);
    s = __fadd_rn(s, __fadd_rn(__fmul_rn(low, x[e]), __fmul_rn(high, x[e + 16])));
  }
  return s;
}

// Block sum with fma (the pair's first product fused) or unpaired (strictly 0 .. 31).
__device__ __forceinline__ float q4_block_variant(const unsigned char* qs, const float* x,
                                                  int variants) {
  float s = 0.0f;
  for (int e = 0; e < 16; ++e) {
    const int byte = qs[e];
    const float low = (float)((byte & 15) - 8);
    const float high = (float)((byte >> 4) - 8);
    if (variants & UNPAIRED) {
      s = product_sum(low, x[e], s, variants);
    } else {
      s = __fadd_rn(s, product_sum(low, x[e], __fmul_rn(high, x[e + 16]), variants));
    }
  }
  if (variants & UNPAIRED) {
    for (int e = 0; e < 16; ++e)
      s = product_sum((float)((qs[e] >> 4) - 8), x[e + 16], s, variants);
  }
  return s;
}

// Exact integer dot of contract 1.4: 32 weights times q[0..31].
__device__ __forceinline__ int q4_block_int(const unsigned char* qs, const short* q) {
  // step 1: low and high nibbles, any order
  int dot = 0;
  for (int e = 0; e < 16; ++e) {
    const int byte = qs[e];
    dot += ((byte & 15) - 8) * (int)q[e] + ((byte >> 4) - 8) * (int)q[e + 16];
  }
  return dot;
}
