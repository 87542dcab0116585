// What kernels/map_elementary.cu lacks of the replica: the inverse root of contract 1.1, and the
// contract's functions with expf by the device's float64 exp (variant exp_via_double).
#include "map_elements.cuh"
#include "variants.cuh"

__device__ __forceinline__ float exact_rsqrt(float x) { return inverse_root(x, 0); }
__device__ __forceinline__ float double_expf(float x) { return any_expf(x, EXP_VIA_DOUBLE); }
__device__ __forceinline__ float double_sigmoid(float x) {
  return any_sigmoid(x, EXP_VIA_DOUBLE);
}
__device__ __forceinline__ float double_silu(float x) { return any_silu(x, EXP_VIA_DOUBLE); }
__device__ __forceinline__ float double_softplus(float x) {
  return any_softplus(x, EXP_VIA_DOUBLE);
}

extern "C" __global__ void map_rsqrt(float* out, const float* x, long long n) {
  map_elements<exact_rsqrt>(out, x, n);
}

extern "C" __global__ void double_map_expf(float* out, const float* x, long long n) {
  map_elements<double_expf>(out, x, n);
}

extern "C" __global__ void double_map_sigmoid(float* out, const float* x, long long n) {
  map_elements<double_sigmoid>(out, x, n);
}

extern "C" __global__ void double_map_silu(float* out, const float* x, long long n) {
  map_elements<double_silu>(out, x, n);
}

extern "C" __global__ void double_map_softplus(float* out, const float* x, long long n) {
  map_elements<double_softplus>(out, x, n);
}

// The device's float64 exp itself; out, x: n float64.
extern "C" __global__ void map_exp64(double* out, const double* x, long long n) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
    out[i] = library_exp(x[i]);
}
