// decay_rates: nA = -expf(A_log), made once at load. Contract 3.2.
// Launch: grid over the value heads, one thread each.
#include "elementary.cuh"

extern "C" __global__ void decay_rates(float* out, const float* a_log, int n) {
  const int h = blockIdx.x * blockDim.x + threadIdx.x;
  if (h >= n) return;
  // step 1: the negated exponential
  out[h] = -ucrt_expf(a_log[h]);
}
