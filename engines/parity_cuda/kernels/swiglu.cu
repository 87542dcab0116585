// swiglu: silu(gate) * up. Contract 1.9.
// Launch: grid over all n elements of all rows, one thread each.
#include "variants.cuh"

extern "C" __global__ void swiglu(float* out, const float* gate, const float* up,
                                  int variants, int n) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= n) return;
  // step 1: silu, then one product
  out[j] = __fmul_rn(any_silu(gate[j], variants), up[j]);
}
