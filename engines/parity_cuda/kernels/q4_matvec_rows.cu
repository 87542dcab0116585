// q4_matvec_rows: q4_matvec for M rows, each weight read once for 8 of them. Contract 1.3.
// Launch: grid (any, blocks of 8 rows), blocks taking tiles of at most 32 weight rows in turn, 256
// threads, dynamic shared memory by ops.py; see q4_rows.cuh. A chain belongs to one thread, so M
// cannot change the order.
#include "q4_rows.cuh"

extern "C" __global__ void __launch_bounds__(256, 2) q4_matvec_rows(float* out,
    const unsigned short* d, const unsigned char* qs, const float* x, int variants, int rows,
    int nb, int tile, int count) {
  extern __shared__ float shared[];
  const int from = blockIdx.y * 8, here = min(8, count - from);
  out += (long long)from * rows;
  x += (long long)from * nb * 32;
  // step 2: d * s, blocks ascending
  if (here > 4) {
    q4_rows<2, 8>(out, d, qs, x, variants, rows, nb, tile, here, shared);
  } else if (here > 2) {
    q4_rows<2, 4>(out, d, qs, x, variants, rows, nb, tile, here, shared);
  } else {
    q4_rows<2, 2>(out, d, qs, x, variants, rows, nb, tile, here, shared);
  }
}
