// f32_matvec_rows: f32_matvec for at most 8 rows, each weight read once for all of them.
// Contract 1.5. Launch: grid (tiles of at most 32 weight rows), block (32, M + 1): M is the shape of
// the block, never an argument; dynamic shared memory by ops.py; see f32_rows.cuh. A chain belongs to
// one thread, so M cannot change the order.
#include "f32_rows.cuh"

extern "C" __global__ void __launch_bounds__(288) f32_matvec_rows(float* out, const float* w,
    const float* x, int variants, int rows, int cols) {
  extern __shared__ float shared[];
  // step 1: one accumulator, ascending
  f32_rows(out, w, x, variants, rows, cols, shared);
}
