// l2norm: q and k of a Gated DeltaNet head. Contract 3.2.
// Launch: grid (heads, M), any block; dynamic shared memory: width floats. One block per head; a row
// of x starts every `stride` floats.
#include "delta.cuh"

extern "C" __global__ void l2norm(float* out, const float* x, float scale, int stride, int width) {
  extern __shared__ float part[];
  __shared__ float shared_r[1];
  x += (long long)blockIdx.y * stride + (long long)blockIdx.x * width;
  out += ((long long)blockIdx.y * gridDim.x + blockIdx.x) * width;
  // step 1: squares, ascending
  for (int j = threadIdx.x; j < width; j += blockDim.x) part[j] = __fmul_rn(x[j], x[j]);
  __syncthreads();
  if (threadIdx.x == 0) {
    const float ss = chain_sum(part, width, 0.0f);
    // step 2: root, reciprocal, each rounded
    shared_r[0] = l2_inverse(ss);
  }
  __syncthreads();
  const float r = shared_r[0];
  // step 3: (x * r) * scale
  for (int j = threadIdx.x; j < width; j += blockDim.x)
    out[j] = __fmul_rn(__fmul_rn(x[j], r), scale);
}
