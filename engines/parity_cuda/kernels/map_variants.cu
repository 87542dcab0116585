// The functions that variants swap, over a whole array. Contract 1.1, 4 and 5. No variant swaps
// logf: map_logf of map_elementary.cu is the engine's own.
//
// Any grid and block: thread by thread in grid strides, one element each, so neither can change a
// bit. out, x: n float32; they may be the same array. variants: bits of variants.cuh.
#include "variants.cuh"

template <float (*function)(float, int)>
__device__ __forceinline__ void map_variants(float* out, const float* x, int variants,
                                             long long n) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
    out[i] = function(x[i], variants);
}

extern "C" __global__ void map_own_rsqrt(float* out, const float* x, int variants, long long n) {
  map_variants<inverse_root>(out, x, variants, n);
}

extern "C" __global__ void map_own_expf(float* out, const float* x, int variants, long long n) {
  map_variants<any_expf>(out, x, variants, n);
}

extern "C" __global__ void map_own_cosf(float* out, const float* x, int variants, long long n) {
  map_variants<any_cosf>(out, x, variants, n);
}

extern "C" __global__ void map_own_sinf(float* out, const float* x, int variants, long long n) {
  map_variants<any_sinf>(out, x, variants, n);
}
