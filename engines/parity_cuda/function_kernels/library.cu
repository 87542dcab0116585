// The device's mathematical library: its float32 functions, and its fast intrinsics.
//
// sigmoid, silu and softplus are composed as contract 1.9 does, of the functions named: 1/(1 + e^-x),
// x * sigmoid(x), log(1 + e^x) up to 20. rsqrtf has no intrinsic of its own: both sets call it.
// The emulator refuses these names: no CPU has the device's bits.
#include "map_elements.cuh"

#define SOFTPLUS_LINEAR 20.0f

__device__ __forceinline__ float device_expf(float x) { return expf(x); }
__device__ __forceinline__ float device_cosf(float x) { return cosf(x); }
__device__ __forceinline__ float device_sinf(float x) { return sinf(x); }
__device__ __forceinline__ float device_logf(float x) { return logf(x); }
__device__ __forceinline__ float device_rsqrt(float x) { return rsqrtf(x); }

__device__ __forceinline__ float device_sigmoid(float x) {
  return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-x)));
}

__device__ __forceinline__ float device_silu(float x) { return __fmul_rn(x, device_sigmoid(x)); }

__device__ __forceinline__ float device_softplus(float x) {
  if (x > SOFTPLUS_LINEAR) return x;
  return logf(__fadd_rn(1.0f, expf(x)));
}

__device__ __forceinline__ float fast_expf(float x) { return __expf(x); }
__device__ __forceinline__ float fast_cosf(float x) { return __cosf(x); }
__device__ __forceinline__ float fast_sinf(float x) { return __sinf(x); }
__device__ __forceinline__ float fast_logf(float x) { return __logf(x); }

__device__ __forceinline__ float fast_sigmoid(float x) {
  return __fdividef(1.0f, __fadd_rn(1.0f, __expf(-x)));
}

__device__ __forceinline__ float fast_silu(float x) { return __fmul_rn(x, fast_sigmoid(x)); }

__device__ __forceinline__ float fast_softplus(float x) {
  if (x > SOFTPLUS_LINEAR) return x;
  return __logf(__fadd_rn(1.0f, __expf(x)));
}

#define MAP(kernel, function)                                                     \
  extern "C" __global__ void kernel(float* out, const float* x, long long n) {    \
    map_elements<function>(out, x, n);                                            \
  }

MAP(device_map_expf, device_expf)
MAP(device_map_cosf, device_cosf)
MAP(device_map_sinf, device_sinf)
MAP(device_map_logf, device_logf)
MAP(device_map_rsqrt, device_rsqrt)
MAP(device_map_sigmoid, device_sigmoid)
MAP(device_map_silu, device_silu)
MAP(device_map_softplus, device_softplus)

MAP(fast_map_expf, fast_expf)
MAP(fast_map_cosf, fast_cosf)
MAP(fast_map_sinf, fast_sinf)
MAP(fast_map_logf, fast_logf)
MAP(fast_map_rsqrt, device_rsqrt)
MAP(fast_map_sigmoid, fast_sigmoid)
MAP(fast_map_silu, fast_silu)
MAP(fast_map_softplus, fast_softplus)
