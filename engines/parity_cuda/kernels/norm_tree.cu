// norm_tree: the norms of 1.1 and 1.2 with the squares summed by tree. Contract 5.
// Launch: grid (R), any block; dynamic shared memory: d padded to a power of two, in floats. One
// block per row, so the number of rows cannot change the order.
#include "norm.cuh"

extern "C" __global__ void norm_tree(float* out, const float* x, const float* w, float eps,
                                     int variants, int d) {
  extern __shared__ float part[];
  x += (long long)blockIdx.x * d;
  out += (long long)blockIdx.x * d;
  // step 1: squares, padded with +0.0, summed by tree
  // step 2: mean, root, reciprocal, each rounded
  const float r = tree_row_root(x, part, eps, variants, d);
  // step 3: (x * r) * w
  for (int j = threadIdx.x; j < d; j += blockDim.x) out[j] = __fmul_rn(__fmul_rn(x[j], r), w[j]);
}
