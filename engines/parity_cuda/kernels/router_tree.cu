// router_tree: the router's products summed by tree. Contract 5.
// Launch: grid (rows, M), threads as route.cuh says; dynamic shared memory: cols padded to a power of two, in
// floats. One block per product row, so M cannot change the order.
#include "route.cuh"

extern "C" __global__ void router_tree(float* out, const float* w, const float* x, int rows,
                                       int cols) {
  extern __shared__ float part[];
  w += (long long)blockIdx.x * cols;
  x += (long long)blockIdx.y * cols;
  // step 1: products, padded with +0.0, summed by tree
  const int left = halved_values(part, cols, TreeProduct{w, x});
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const float sum = warp_tree(part, left);
  if (threadIdx.x == 0) out[(long long)blockIdx.y * rows + blockIdx.x] = sum;
}
