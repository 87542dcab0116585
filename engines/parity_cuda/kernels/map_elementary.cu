// The elementary functions over a whole array. Contract 4 and 1.9.
//
// Any grid and block: thread by thread in grid strides, one element each, so neither can change a
// bit. out, x: n float32; they may be the same array.
#include "elementary.cuh"

template <float (*function)(float)>
__device__ __forceinline__ void map_elements(float* out, const float* x, long long n) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
    out[i] = function(x[i]);
}

extern "C" __global__ void map_expf(float* out, const float* x, long long n) {
  map_elements<ucrt_expf>(out, x, n);
}

extern "C" __global__ void map_cosf(float* out, const float* x, long long n) {
  map_elements<ucrt_cosf>(out, x, n);
}

extern "C" __global__ void map_sinf(float* out, const float* x, long long n) {
  map_elements<ucrt_sinf>(out, x, n);
}

extern "C" __global__ void map_logf(float* out, const float* x, long long n) {
  map_elements<ucrt_logf>(out, x, n);
}

extern "C" __global__ void map_sigmoid(float* out, const float* x, long long n) {
  map_elements<sigmoid>(out, x, n);
}

extern "C" __global__ void map_silu(float* out, const float* x, long long n) {
  map_elements<silu>(out, x, n);
}

extern "C" __global__ void map_softplus(float* out, const float* x, long long n) {
  map_elements<softplus>(out, x, n);
}
