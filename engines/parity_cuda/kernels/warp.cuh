// warp: values of 32 lanes brought together. Contract 1.4, 1.6.
// Every lane of the warp must call these.
#pragma once

// The largest magnitude, for every lane.
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int by = 16; by > 0; by /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, by));
  return value;
}

// The same of magnitudes, none of them a NaN: as floats they are ordered as their bits are.
__device__ __forceinline__ float warp_largest(float value) {
#ifdef __CUDA_EMU__
  return warp_max(value);
#else
  return __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(value)));
#endif
}
