// q4_matvec: Q4_0 rows times float rows. Contract 1.3.
// Launch: grid (blocks over rows, M), one thread a weight row. A chain belongs to one thread, so
// neither the grid nor M can change the order.
#include "q4.cuh"

// One row of the exact tier.
__device__ __forceinline__ float row_exact(const unsigned short* d, const unsigned char* qs,
                                           const float* x, int nb) {
  float acc = 0.0f;
  for (int b = 0; b < nb; ++b) {
    const float s = q4_block(qs + b * 16, x + b * 32);
    // step 2: d * s, blocks ascending
    acc = __fadd_rn(acc, __fmul_rn(half_to_f32(d[b]), s));
  }
  return acc;
}

// One row with fma, split_k or unpaired: block b adds to partial b mod 4, or all to one.
__device__ __forceinline__ float row_variant(const unsigned short* d, const unsigned char* qs,
                                             const float* x, int variants, int nb) {
  float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int b = 0; b < nb; ++b) {
    const float s = q4_block_variant(qs + b * 16, x + b * 32, variants);
    const int at = variants & SPLIT_K ? b % 4 : 0;
    part[at] = product_sum(half_to_f32(d[b]), s, part[at], variants);
  }
  if (!(variants & SPLIT_K)) return part[0];
  float acc = 0.0f;
  for (int at = 0; at < 4; ++at) acc = __fadd_rn(acc, part[at]);
  return acc;
}

extern "C" __global__ void q4_matvec(float* out, const unsigned short* d, const unsigned char* qs,
                                     const float* x, int variants, int rows, int nb) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y;
  if (r >= rows) return;
  const long long row = (long long)r * nb;
  x += (long long)m * nb * 32;
  const bool exact = !(variants & (FMA | SPLIT_K | UNPAIRED));
  out[(long long)m * rows + r] = exact ? row_exact(d + row, qs + row * 16, x, nb)
                                       : row_variant(d + row, qs + row * 16, x, variants, nb);
}
