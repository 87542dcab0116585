// shared_gate: the gate of the shared expert. Contract 1.9, 2.
// Launch: grid over all n elements of all rows, one thread each.
#include "variants.cuh"

extern "C" __global__ void shared_gate(float* out, const float* x, int variants, int n) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= n) return;
  // step 1: sigmoid
  out[j] = any_sigmoid(x[j], variants);
}
