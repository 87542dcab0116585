// tree: sums by halving. Contract 5 (norm_tree, router_tree, two_pass).
#pragma once

// The smallest power of two that is not below count.
__device__ __forceinline__ int power_of_two(int count) {
  return count > 1 ? 1 << (32 - __clz(count - 1)) : 1;
}

// Sum of x (a power of two elements, padded with +0.0), by halving, in place, by the whole block.
// Every thread of the block must call it, after a barrier that made x complete.
__device__ __forceinline__ float tree_sum(float* x, int n) {
  const int threads = blockDim.x;
  const bool even = (threads & (threads - 1)) == 0;
  // step 1: x[i] = x[i] + x[i + n / 2], halving n
  while (n > 1) {
    n /= 2;
    for (int i = threadIdx.x; i < n; i += threads) x[i] = __fadd_rn(x[i], x[i + n]);
    // where the next half is a multiple of the block, a thread meets only what it wrote itself
    if (!even || n / 2 < threads) __syncthreads();
  }
  return x[0];
}
