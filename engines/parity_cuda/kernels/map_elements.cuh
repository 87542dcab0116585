// One function over a whole array.
//
// Any grid and block: thread by thread in grid strides, one element each, so neither can change a
// bit. out, x: n float32; they may be the same array.
#pragma once

template <float (*function)(float)>
__device__ __forceinline__ void map_elements(float* out, const float* x, long long n) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
    out[i] = function(x[i]);
}
