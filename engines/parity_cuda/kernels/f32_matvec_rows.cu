// f32_matvec_rows: f32_matvec for at most 8 rows, each weight read once for all of them.
// Contract 1.5. Launch: grid (tiles of weight rows), whole warps, two at least, dynamic shared memory
// by tuning.py; see f32_many.cuh. A chain belongs to one thread, so M cannot change the order.
#include "f32_many.cuh"

extern "C" __global__ void __launch_bounds__(256) f32_matvec_rows(float* out, const float* w,
    const float* x, int variants, int rows, int cols, int count) {
  extern __shared__ float shared[];
  // step 1: one accumulator, ascending
  f32_many(out, w, x, variants, rows, cols, count, shared);
}
