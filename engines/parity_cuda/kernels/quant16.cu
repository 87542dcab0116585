// quant16: int16 activations of the experts, one scale a block of 32. Contract 1.4.
// Launch: grid over all blocks of 32 of all rows, one thread a block.
#include "variants.cuh"

extern "C" __global__ void quant16(short* q, float* scale, const float* x, int variants,
                                   int blocks) {
  const int b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= blocks) return;
  x += (long long)b * 32;
  q += (long long)b * 32;
  // step 1: largest magnitude, any order
  float amax = 0.0f;
  for (int j = 0; j < 32; ++j) amax = fmaxf(amax, fabsf(x[j]));
  // step 2: the scale
  const float s = __fdiv_rn(amax, 32767.0f);
  scale[b] = s;
  // step 3: divide, round to even, clamp as float; a zero scale gives zeros
  for (int j = 0; j < 32; ++j) {
    float t = 0.0f;
    if (!zero_scale(s, variants)) {
      t = rintf(quotient(x[j], s, variants));
      t = fminf(fmaxf(t, -32767.0f), 32767.0f);
    }
    q[j] = (short)__float2int_rz(t);
  }
}
