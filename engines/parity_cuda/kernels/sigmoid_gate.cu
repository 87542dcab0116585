// sigmoid_gate: attn * sigmoid(gate). Contract 3.1.
// Launch: grid over all n elements of all rows, one thread each.
#include "variants.cuh"

extern "C" __global__ void sigmoid_gate(float* out, const float* x, const float* gate,
                                        int variants, int n) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= n) return;
  // step 1: sigmoid, then one product
  out[j] = __fmul_rn(x[j], any_sigmoid(gate[j], variants));
}
