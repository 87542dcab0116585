// silu_gate: normed * silu(z), the end of the gated norm. Contract 3.2.
// Launch: grid over all n elements of all rows, one thread each.
#include "variants.cuh"

extern "C" __global__ void silu_gate(float* out, const float* x, const float* z, int variants,
                                     int n) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= n) return;
  // step 1: silu, then one product
  out[j] = __fmul_rn(x[j], any_silu(z[j], variants));
}
