// expert_matvec: rows of the chosen Q4_0 experts times int16 rows. Contract 1.4.
// Launch: grid (blocks over rows, k, M), one thread a weight row. groups = 1: one input for all
// ranks; groups = k: each its own. A chain belongs to one thread, so M cannot change the order.
#include "q4.cuh"
#include "variants.cuh"

extern "C" __global__ void expert_matvec(float* out, const unsigned short* d,
                                         const unsigned char* qs, const int* ids,
                                         const float* probs, const short* q, const float* s_a,
                                         int variants, int rows, int nb, int groups) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  const int rank = blockIdx.y, m = blockIdx.z, ranks = gridDim.y;
  if (r >= rows) return;
  const long long expert = ids[m * ranks + rank];
  const int g = groups > 1 ? rank : 0;
  const long long input = ((long long)m * groups + g) * nb;
  float acc = 0.0f;
  for (int b = 0; b < nb; ++b) {
    const long long block = (expert * rows + r) * nb + b;
    const int dot = q4_block_int(qs + block * 16, q + (input + b) * 32);
    // step 2: (dot * s_w) * s_a, blocks ascending
    float term = scaled_dot(dot, half_to_f32(d[block]), s_a[input + b], variants);
    if (variants & FOLD_P) term = __fmul_rn(term, probs[m * ranks + rank]);
    acc = __fadd_rn(acc, term);
  }
  out[((long long)m * ranks + rank) * rows + r] = acc;
}
