// quant16: int16 activations of the experts, one scale a block of 32. Contract 1.4.
// Launch: grid over all blocks of 32 of all rows, whole warps, a warp a block.
#include "variants.cuh"
#include "warp.cuh"

extern "C" __global__ void quant16(short* q, float* scale, const float* x, int variants,
                                   int blocks) {
  const int b = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (b >= blocks) return;
  const long long at = (long long)b * 32 + threadIdx.x % 32;
  // step 1: largest magnitude, any order
  const float value = x[at], amax = warp_max(fabsf(value));
  // step 2: the scale
  const float s = __fdiv_rn(amax, 32767.0f);
  if (threadIdx.x % 32 == 0) scale[b] = s;
  // step 3: divide, round to even, clamp as float; a zero scale gives zeros
  float t = 0.0f;
  if (!zero_scale(s, variants)) {
    t = rintf(quotient(value, s, variants));
    t = fminf(fmaxf(t, -32767.0f), 32767.0f);
  }
  q[at] = (short)__float2int_rz(t);
}
