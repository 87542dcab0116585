// conv_step: one step of the depthwise causal convolution, width 4. Contract 3.2.
// Launch: grid over the channels, one thread each; rows follow each other in launches.
#include "delta.cuh"

extern "C" __global__ void conv_step(float* out, float* hist, const float* qkv, const float* w,
                                     int variants, int channels) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  // step 1: taps over [hist, new], ascending
  float tap[4];
  for (int t = 0; t < 3; ++t) tap[t] = hist[t * channels + c];
  tap[3] = qkv[c];
  const float sum = conv_sum(tap, w + c * 4);
  // step 2: silu
  out[c] = any_silu(sum, variants);
  // step 3: hist shifts by the raw qkv
  for (int t = 0; t < 3; ++t) hist[t * channels + c] = tap[t + 1];
}
