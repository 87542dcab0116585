// norm: the root mean square norm of a row by a whole block. Contract 1.1, 5.
#pragma once
#include "heads.cuh"

// The sum of eight squares, in the contract's order.
__device__ __forceinline__ float eight_squares(const float* v) {
  const float lo0 = __fadd_rn(__fmul_rn(v[0], v[0]), __fmul_rn(v[4], v[4]));
  const float lo1 = __fadd_rn(__fmul_rn(v[1], v[1]), __fmul_rn(v[5], v[5]));
  const float lo2 = __fadd_rn(__fmul_rn(v[2], v[2]), __fmul_rn(v[6], v[6]));
  const float lo3 = __fadd_rn(__fmul_rn(v[3], v[3]), __fmul_rn(v[7], v[7]));
  return __fadd_rn(__fadd_rn(lo0, lo1), __fadd_rn(lo2, lo3));
}

// 1 / root of the mean square of x[d], for every thread; every thread of the block must call it.
// part: shared memory, d / 8 + 4 floats at a multiple of 16 bytes; norm_tree wants tree_row_root.
__device__ __forceinline__ float row_root(const float* x, float* part, float eps, int variants,
                                          int d) {
  __shared__ float shared_root[1];
  const int blocks = d / 8;
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
    shared_root[0] = mean_root(ss, d, eps, variants);
  }
  __syncthreads();
  return shared_root[0];
}

// The same with the squares summed by tree; part: d padded to a power of two, in floats.
__device__ __forceinline__ float tree_row_root(const float* x, float* part, float eps,
                                               int variants, int d) {
  const int n = power_of_two(d);
  // step 1: squares, padded with +0.0, summed by tree
  for (int j = threadIdx.x; j < n; j += blockDim.x) part[j] = j < d ? __fmul_rn(x[j], x[j]) : 0.0f;
  __syncthreads();
  const float ss = tree_sum(part, n);
  // step 2: mean, root, reciprocal, each rounded
  return mean_root(ss, d, eps, variants);
}
