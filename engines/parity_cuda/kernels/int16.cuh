// int16: 32 values as integers, one scale for them, by a warp. Contract 1.4.
#pragma once
#include "variants.cuh"
#include "warp.cuh"

// The int16 of this lane's value; scale: the block's. Every lane of the warp must call it.
__device__ __forceinline__ short quantised16(float value, float& scale, int variants) {
  // step 1: largest magnitude, any order
  const float amax = warp_max(fabsf(value));
  // step 2: the scale
  scale = __fdiv_rn(amax, 32767.0f);
  // step 3: divide, round to even, clamp as float; a zero scale gives zeros
  float t = 0.0f;
  if (!zero_scale(scale, variants)) {
    t = rintf(quotient(value, scale, variants));
    t = fminf(fmaxf(t, -32767.0f), 32767.0f);
  }
  return (short)__float2int_rz(t);
}
