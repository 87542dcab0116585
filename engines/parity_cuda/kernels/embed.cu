// embed: rows of a Q4_0 embedding, widened. Contract 1.0.
// Launch: grid (blocks over nb * 16 bytes, M), one thread a byte. A row is its own y index, so M
// cannot change anything. The first launch of a step: the next one may begin beside it.
#include "overlap.cuh"
#include "q4.cuh"

extern "C" __global__ void embed(float* out, const unsigned short* d, const unsigned char* qs,
                                 const int* tokens, int nb) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y;
  wait_for_previous();
  let_next_start();
  if (at >= nb * 16) return;
  const long long row = tokens[m];
  const int b = at / 16, e = at % 16;
  const float scale = half_to_f32(d[row * nb + b]);
  const int byte = qs[row * nb * 16 + at];
  float* to = out + (long long)m * nb * 32 + b * 32;
  // step 1: d * (nibble - 8), low nibbles first
  to[e] = __fmul_rn(scale, (float)((byte & 15) - 8));
  to[e + 16] = __fmul_rn(scale, (float)((byte >> 4) - 8));
}
