// headnorm: norm of each head (QK-norm). Contract 1.2.
// Launch: grid (heads, M), any block; dynamic shared memory: hd floats. One block per head: neither
// heads nor M can change the order.
#include "heads.cuh"

extern "C" __global__ void headnorm(float* out, const float* x, const float* w, float eps, int variants,
                                    int hd) {
  extern __shared__ float part[];
  __shared__ float shared_r[1];
  const long long at = ((long long)blockIdx.y * gridDim.x + blockIdx.x) * hd;
  x += at;
  out += at;
  // step 1: squares, strictly ascending
  for (int j = threadIdx.x; j < hd; j += blockDim.x) part[j] = __fmul_rn(x[j], x[j]);
  __syncthreads();
  if (threadIdx.x == 0) {
    const float ss = chain_sum(part, hd, 0.0f);
    // step 2: mean, root, reciprocal, each rounded
    shared_r[0] = mean_root(ss, hd, eps, variants);
  }
  __syncthreads();
  const float r = shared_r[0];
  // step 3: (x * r) * w
  for (int j = threadIdx.x; j < hd; j += blockDim.x) out[j] = normed(x[j], r, w[j]);
}
