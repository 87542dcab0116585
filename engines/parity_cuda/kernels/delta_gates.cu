// delta_gates: beta and g of each value head. Contract 3.2.
// Launch: grid (blocks over the value heads, M), one thread each.
#include "delta.cuh"

extern "C" __global__ void delta_gates(float* beta, float* g, const float* a, const float* b,
                                       const float* rates, const float* dt_bias, int variants,
                                       int heads) {
  const int h = blockIdx.x * blockDim.x + threadIdx.x;
  if (h >= heads) return;
  const long long at = (long long)blockIdx.y * heads + h;
  // step 1: beta = sigmoid(b)
  beta[at] = any_sigmoid(b[at], variants);
  // step 2: g = expf(nA * softplus(a + dt_bias))
  g[at] = decay(a[at], rates[h], dt_bias[h], variants);
}
