// sigmoid_gate: attn * sigmoid(gate). Contract 3.1.
// Launch: grid over all n elements of all rows, one thread each. The launch before has made x, an
// earlier one the gate.
#include "overlap.cuh"
#include "variants.cuh"

extern "C" __global__ void sigmoid_gate(float* out, const float* x, const float* gate,
                                        int variants, int n) {
  variants = KNOWN(variants);
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  // step 1: sigmoid, then one product
  const float by = j < n ? any_sigmoid(gate[j], variants) : 0.0f;
  wait_for_previous();
  let_next_start();
  if (j < n) out[j] = __fmul_rn(x[j], by);
}
