// q4_matvec_rows: q4_matvec for M rows, each weight read once for 8 of them. Contract 1.3.
// Launch: grid (any, blocks of 8 rows), blocks taking tiles of weight rows in turn, up to 512 threads,
// dynamic shared memory by many_shapes.py; see q4_rows.cuh. A chain belongs to one thread, so M cannot
// change the order.
#include "q4_rows.cuh"

extern "C" __global__ void __launch_bounds__(512) q4_matvec_rows(float* out,
    const unsigned short* d, const unsigned char* qs, const float* x, int variants, int rows,
    int nb, int tile, int window, int buffers, int count) {
  extern __shared__ char room[];
  const int from = blockIdx.y * 8, here = min(8, count - from);
  out += (long long)from * rows;
  x += (long long)from * nb * 32;
  // step 2: d * s, blocks ascending
  if (here > 4) {
    q4_rows<8>(out, d, qs, x, variants, rows, nb, tile, window, buffers, here, room);
  } else if (here > 2) {
    q4_rows<4>(out, d, qs, x, variants, rows, nb, tile, window, buffers, here, room);
  } else {
    q4_rows<2>(out, d, qs, x, variants, rows, nb, tile, window, buffers, here, room);
  }
}
