// f32_matvec: f32 rows times float rows (the router). Contract 1.5.
// Launch: grid (blocks over rows, M), one thread a weight row. A chain belongs to one thread, so
// neither the grid nor M can change the order.
#include "variants.cuh"

extern "C" __global__ void f32_matvec(float* out, const float* w, const float* x,
                                      int variants, int rows, int cols) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y;
  if (r >= rows) return;
  w += (long long)r * cols;
  x += (long long)m * cols;
  // step 1: one accumulator, ascending
  float acc = 0.0f;
  for (int j = 0; j < cols; ++j) acc = product_sum(w[j], x[j], acc, variants);
  out[(long long)m * rows + r] = acc;
}
