// q4_matvec: Q4_0 rows times one float row. Contract 1.3.
// Launch: any grid (blocks take tiles of weight rows in turn), 256 threads, dynamic shared memory by
// ops.py; see q4_rows.cuh. A chain belongs to one thread, so the grid cannot change the order.
#include "q4_rows.cuh"

extern "C" __global__ void __launch_bounds__(256, 3) q4_matvec(float* out, const unsigned short* d,
    const unsigned char* qs, const float* x, int variants, int rows, int nb,
    int tile) {
  extern __shared__ float shared[];
  // step 2: d * s, blocks ascending
  if (tile >= 8) {
    q4_rows<2, 1>(out, d, qs, x, variants, rows, nb, tile, 1, shared);
  } else {
    q4_rows<1, 1>(out, d, qs, x, variants, rows, nb, tile, 1, shared);
  }
}
