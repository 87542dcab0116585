// quant8: int8 rows of K, V and the query, one scale a head. Contract 1.6.
// Launch: grid (heads, M), 32 threads: a warp a head, so M cannot change anything.
#include "heads.cuh"

extern "C" __global__ void quant8(signed char* q, float* scale, const float* x, int variants,
                                  int heads, int hd) {
  const long long row = (long long)blockIdx.y * heads + blockIdx.x;
  x += row * hd;
  q += row * hd;
  // step 1: largest magnitude, any order
  float amax = 0.0f;
  for (int j = threadIdx.x; j < hd; j += 32) amax = fmaxf(amax, fabsf(x[j]));
  amax = warp_max(amax);
  // step 2: the scale, stored as computed
  const float s = __fdiv_rn(amax, 127.0f);
  if (threadIdx.x == 0) scale[row] = s;
  // step 3: divide, round to even, clamp as float; a zero scale gives zeros
  for (int j = threadIdx.x; j < hd; j += 32) q[j] = quantised(x[j], s, variants);
}
