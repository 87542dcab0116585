// expert_f32_matvec: rows of the chosen f32 experts times float rows. Contract 1.5.
// Launch: grid (tiles of at most 32 weight rows, k, M), block (32, 2), dynamic shared memory by
// ops.py; see f32_rows.cuh. groups = 1: one input for all ranks; groups = k: each its own. A chain
// belongs to one thread, so M cannot change the order.
#include "f32_rows.cuh"

extern "C" __global__ void __launch_bounds__(64) expert_f32_matvec(float* out, const float* w,
    const int* ids, const float* x, int variants, int rows, int cols, int groups) {
  extern __shared__ float shared[];
  const int rank = blockIdx.y, m = blockIdx.z, ranks = gridDim.y;
  const int g = groups > 1 ? rank : 0;
  w += (long long)ids[m * ranks + rank] * rows * cols;
  x += ((long long)m * groups + g) * cols;
  // step 1: one accumulator, ascending
  f32_rows(out + ((long long)m * ranks + rank) * rows, w, x, variants, rows, cols, shared);
}
