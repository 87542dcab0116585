// q4_matvec: Q4_0 rows times float rows. Contract 1.3.
// Launch: grid (blocks over rows, M), one thread a weight row. A chain belongs to one thread, so
// neither the grid nor M can change the order.
#include "q4.cuh"

extern "C" __global__ void q4_matvec(float* out, const unsigned short* d, const unsigned char* qs,
                                     const float* x, int rows, int nb) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y;
  if (r >= rows) return;
  x += (long long)m * nb * 32;
  float acc = 0.0f;
  for (int b = 0; b < nb; ++b) {
    const long long block = (long long)r * nb + b;
    const float s = q4_block(qs + block * 16, x + b * 32);
    // step 2: d * s, blocks ascending
    acc = __fadd_rn(acc, __fmul_rn(half_to_f32(d[block]), s));
  }
  out[(long long)m * rows + r] = acc;
}
