// router_tree: the router's products summed by tree. Contract 5.
// Launch: grid (rows, M), any block; dynamic shared memory: cols padded to a power of two, in
// floats. One block per product row, so M cannot change the order.
#include "tree.cuh"

extern "C" __global__ void router_tree(float* out, const float* w, const float* x, int rows,
                                       int cols) {
  extern __shared__ float part[];
  const int n = power_of_two(cols);
  w += (long long)blockIdx.x * cols;
  x += (long long)blockIdx.y * cols;
  // step 1: products, padded with +0.0, summed by tree
  for (int j = threadIdx.x; j < n; j += blockDim.x)
    part[j] = j < cols ? __fmul_rn(w[j], x[j]) : 0.0f;
  __syncthreads();
  const float sum = tree_sum(part, n);
  if (threadIdx.x == 0) out[(long long)blockIdx.y * rows + blockIdx.x] = sum;
}
