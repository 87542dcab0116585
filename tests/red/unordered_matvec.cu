// unordered_matvec: Q4_0 rows times one float row, with every 32 columns added by a block of its
// own. A planted fault: which block comes first decides in which order a sum is rounded.
// Launch: grid (blocks over rows, blocks of 32 columns), one thread a weight row; out holds zeros.
#include "q4.cuh"

// A float atomic a product: no addition is lost, their order is nobody's.
extern "C" __global__ void atomic_matvec(float* out, const unsigned short* d,
                                         const unsigned char* qs, const float* x, int rows,
                                         int nb) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  const long long at = (long long)r * nb + blockIdx.y;
  const float scale = half_to_f32(d[at]);
  x += blockIdx.y * 32;
  for (int e = 0; e < 16; ++e) {
    const int byte = qs[at * 16 + e];
    atomicAdd(out + r, __fmul_rn(scale, __fmul_rn((float)((byte & 15) - 8), x[e])));
    atomicAdd(out + r, __fmul_rn(scale, __fmul_rn((float)((byte >> 4) - 8), x[e + 16])));
  }
}

// A race: each block reads what another may be about to write.
extern "C" __global__ void racing_matvec(float* out, const unsigned short* d,
                                         const unsigned char* qs, const float* x, int rows,
                                         int nb) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  const long long at = (long long)r * nb + blockIdx.y;
  x += blockIdx.y * 32;
  float sum = 0.0f;
  for (int e = 0; e < 16; ++e) {
    const int byte = qs[at * 16 + e];
    sum = __fadd_rn(sum, __fmul_rn((float)((byte & 15) - 8), x[e]));
    sum = __fadd_rn(sum, __fmul_rn((float)((byte >> 4) - 8), x[e + 16]));
  }
  out[r] = __fadd_rn(out[r], __fmul_rn(half_to_f32(d[at]), sum));
}
