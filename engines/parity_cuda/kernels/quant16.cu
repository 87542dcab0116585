// quant16: int16 activations of the experts, one scale a block of 32. Contract 1.4.
// Launch: grid over all blocks of 32 of all rows, whole warps, a warp a block.
#include "int16.cuh"

extern "C" __global__ void quant16(short* q, float* scale, const float* x, int variants,
                                   int blocks) {
  const int b = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (b >= blocks) return;
  const long long at = (long long)b * 32 + threadIdx.x % 32;
  float s;
  // step 1: largest magnitude, any order
  // step 2: the scale
  // step 3: divide, round to even, clamp as float; a zero scale gives zeros
  q[at] = quantised16(x[at], s, variants);
  if (threadIdx.x % 32 == 0) scale[b] = s;
}
