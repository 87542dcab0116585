// rmsnorm: root mean square norm of whole rows. Contract 1.1.
// Launch: grid (M), any block; dynamic shared memory: d / 8 + 4 floats. One block per row: the grid
// never splits a row, so M cannot change the order.
#include "norm.cuh"

extern "C" __global__ void rmsnorm(float* out, const float* x, const float* w, float eps, int variants,
                                   int d) {
  extern __shared__ float part[];
  x += (long long)blockIdx.x * d;
  out += (long long)blockIdx.x * d;
  // step 1: blocks of 8, ascending
  // step 2: tail, ascending
  // step 3: mean, root, reciprocal, each rounded
  const float r = row_root(x, part, eps, variants, d);
  // step 4: (x * r) * w
  for (int j = threadIdx.x; j < d; j += blockDim.x) out[j] = __fmul_rn(__fmul_rn(x[j], r), w[j]);
}
