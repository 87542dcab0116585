// router_tree: the router's products summed by tree. Contract 5.
// Launch: grid (rows, M), any block; dynamic shared memory: cols padded to a power of two, in
// floats. One block per product row, so M cannot change the order.
#include "route.cuh"

extern "C" __global__ void router_tree(float* out, const float* w, const float* x, int rows,
                                       int cols) {
  extern __shared__ float part[];
  w += (long long)blockIdx.x * cols;
  x += (long long)blockIdx.y * cols;
  // step 1: products, padded with +0.0, summed by tree
  const float sum = tree_dot(part, w, x, cols);
  if (threadIdx.x == 0) out[(long long)blockIdx.y * rows + blockIdx.x] = sum;
}
