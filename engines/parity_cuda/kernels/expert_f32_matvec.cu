// expert_f32_matvec: rows of the chosen f32 experts times float rows. Contract 1.5.
// Launch: grid (blocks over rows, k, M), one thread a weight row. groups = 1: one input for all
// ranks; groups = k: each its own. A chain belongs to one thread, so M cannot change the order.
#include "variants.cuh"

extern "C" __global__ void expert_f32_matvec(float* out, const float* w, const int* ids,
                                             const float* x, int variants, int rows, int cols,
                                             int groups) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  const int rank = blockIdx.y, m = blockIdx.z, ranks = gridDim.y;
  if (r >= rows) return;
  const int g = groups > 1 ? rank : 0;
  w += ((long long)ids[m * ranks + rank] * rows + r) * cols;
  x += ((long long)m * groups + g) * cols;
  // step 1: one accumulator, ascending
  float acc = 0.0f;
  for (int j = 0; j < cols; ++j) acc = product_sum(w[j], x[j], acc, variants);
  out[((long long)m * ranks + rank) * rows + r] = acc;
}
