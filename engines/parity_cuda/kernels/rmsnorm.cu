// rmsnorm: root mean square norm of whole rows. Contract 1.1.
// Launch: grid (M), any block; dynamic shared memory: d / 8 + 4 floats. One block per row: the grid
// never splits a row, so M cannot change the order.
#include "chain.cuh"

// The sum of eight squares, in the contract's order.
__device__ __forceinline__ float eight_squares(const float* v) {
  const float lo0 = __fadd_rn(__fmul_rn(v[0], v[0]), __fmul_rn(v[4], v[4]));
  const float lo1 = __fadd_rn(__fmul_rn(v[1], v[1]), __fmul_rn(v[5], v[5]));
  const float lo2 = __fadd_rn(__fmul_rn(v[2], v[2]), __fmul_rn(v[6], v[6]));
  const float lo3 = __fadd_rn(__fmul_rn(v[3], v[3]), __fmul_rn(v[7], v[7]));
  return __fadd_rn(__fadd_rn(lo0, lo1), __fadd_rn(lo2, lo3));
}

extern "C" __global__ void rmsnorm(float* out, const float* x, const float* w, float eps, int variants,
                                   int d) {
  extern __shared__ float part[];
  __shared__ float shared_r[1];
  const int blocks = d / 8;
  x += (long long)blockIdx.x * d;
  out += (long long)blockIdx.x * d;
  const bool wide = d % 4 == 0 && (size_t)x % 16 == 0;
  // step 1: blocks of 8, ascending
  for (int b = threadIdx.x; b < blocks; b += blockDim.x) {
    float v[8];
    if (wide) {
      *(float4*)v = ((const float4*)x)[2 * b];
      *(float4*)(v + 4) = ((const float4*)x)[2 * b + 1];
    } else {
      for (int i = 0; i < 8; ++i) v[i] = x[b * 8 + i];
    }
    part[b] = eight_squares(v);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    float ss = chain_sum(part, blocks, 0.0f);
    // step 2: tail, ascending
    for (int j = blocks * 8; j < d; ++j) ss = __fadd_rn(ss, __fmul_rn(x[j], x[j]));
    // step 3: mean, root, reciprocal, each rounded
    shared_r[0] = inverse_root(__fadd_rn(__fdiv_rn(ss, (float)d), eps), variants);
  }
  __syncthreads();
  const float r = shared_r[0];
  // step 4: (x * r) * w
  for (int j = threadIdx.x; j < d; j += blockDim.x) out[j] = __fmul_rn(__fmul_rn(x[j], r), w[j]);
}
