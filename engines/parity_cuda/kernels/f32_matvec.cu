// f32_matvec: f32 rows times float rows (the router). Contract 1.5.
// Launch: grid (tiles of at most 32 weight rows), block (32, 2), dynamic shared memory by ops.py; see
// f32_rows.cuh. A chain belongs to one thread, so the grid cannot change the order.
#include "f32_rows.cuh"

extern "C" __global__ void __launch_bounds__(64) f32_matvec(float* out, const float* w,
    const float* x, int variants, int rows, int cols) {
  extern __shared__ float shared[];
  // step 1: one accumulator, ascending
  f32_rows(out, w, x, variants, rows, cols, shared);
}
