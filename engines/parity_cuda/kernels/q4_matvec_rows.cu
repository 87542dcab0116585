// q4_matvec_rows: q4_matvec for M rows, each weight read once for 8 of them. Contract 1.3.
// Launch: grid (any, blocks of 8 rows), up to 12 warps, dynamic shared memory by many_shapes.py; see
// q4_rows.cuh. m: rows that the kernel is compiled for. A chain belongs to one lane, so M cannot change
// the order.
#include "q4_rows.cuh"

extern "C" __global__ void __launch_bounds__(384, 1) q4_matvec_rows(float* out,
    const unsigned short* d, const unsigned char* qs, const float* x, int variants, int rows,
    int nb, int m, int tile, int stock, int count) {
  extern __shared__ char room[];
  const int from = blockIdx.y * 8, here = min(8, count - from);
  out += (long long)from * rows;
  x += (long long)from * nb * 32;
  // step 2: d * s, blocks ascending
  if (m == 8) {
    q4_rows<8>(out, d, qs, x, variants, rows, nb, tile, stock, here, room);
  } else if (m == 4) {
    q4_rows<4>(out, d, qs, x, variants, rows, nb, tile, stock, here, room);
  } else {
    q4_rows<2>(out, d, qs, x, variants, rows, nb, tile, stock, here, room);
  }
}
