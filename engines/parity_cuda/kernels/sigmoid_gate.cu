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
  // Before the wait: the next launch is the projection, which reads nothing of attention or of this one
  // until it has waited; its weights are on their way some 3 us earlier.
  let_next_start();
  wait_for_previous();
  if (j < n) out[j] = __fmul_rn(x[j], by);
}
