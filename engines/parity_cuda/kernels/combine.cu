// combine: the experts' outputs by rank, then the residual. Contract 2 (FFN).
// Launch: grid (blocks over hidden, M), one thread an element, so M cannot change the order.
#include "ranks.cuh"

extern "C" __global__ void combine(float* out, const float* ores, const float* down,
                                   const float* probs, int variants, int hidden, int ranks) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y;
  if (j >= hidden) return;
  const long long row = (long long)m * ranks, at = (long long)m * hidden + j;
  // step 1: ffn = ffn + p * down, in rank order
  const float ffn = ranks_sum(down + row * hidden + j, hidden, probs + row, ranks, variants);
  // step 2: x = ores + ffn
  out[at] = __fadd_rn(ores[at], ffn);
}
