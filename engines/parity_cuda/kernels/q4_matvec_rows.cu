// q4_matvec_rows: q4_matvec for M rows, each weight read once for 8 of them. Contract 1.3.
// Launch: grid (any, blocks of 8 rows), up to 12 warps, dynamic shared memory by many_shapes.py; see
// q4_rows.cuh. m: rows that the kernel is compiled for. A chain belongs to one lane, so M cannot change
// the order.
#include "q4_rows.cuh"

// Out of line: what the variants need must cost the exact tier no register.
template <int M, int FIXED>
__device__ __noinline__ void q4_rows_variants(float* out, const unsigned short* d,
                                              const unsigned char* qs, const float* x, int variants,
                                              int rows, int nb, int tile, int stock, int count,
                                              char* room) {
  q4_rows<M, FIXED>(out, d, qs, x, variants, rows, nb, tile, stock, count, room);
}

extern "C" __global__ void __launch_bounds__(384, 1) q4_matvec_rows(float* out,
    const unsigned short* d, const unsigned char* qs, const float* x, int variants, int rows,
    int nb, int m, int tile, int stock, int count) {
  extern __shared__ char room[];
  const int from = blockIdx.y * 8, here = min(8, count - from);
  const int other = variants & (FMA | SPLIT_K | ZERO_POINT | UNPAIRED);
  out += (long long)from * rows;
  x += (long long)from * nb * 32;
  // step 2: d * s, blocks ascending
  if (other == 0) {
    if (m == 8) {
      q4_rows<8, 0>(out, d, qs, x, 0, rows, nb, tile, stock, here, room);
    } else if (m == 4) {
      q4_rows<4, 0>(out, d, qs, x, 0, rows, nb, tile, stock, here, room);
    } else {
      q4_rows<2, 0>(out, d, qs, x, 0, rows, nb, tile, stock, here, room);
    }
  } else if ((other & ~UNPAIRED) == MANY_FAST) {
    if (m == 8) {
      q4_rows_variants<8, MANY_FAST>(out, d, qs, x, MANY_FAST, rows, nb, tile, stock, here, room);
    } else if (m == 4) {
      q4_rows_variants<4, MANY_FAST>(out, d, qs, x, MANY_FAST, rows, nb, tile, stock, here, room);
    } else {
      q4_rows_variants<2, MANY_FAST>(out, d, qs, x, MANY_FAST, rows, nb, tile, stock, here, room);
    }
  } else {
    q4_rows_variants<8, MANY_OTHER>(out, d, qs, x, other, rows, nb, tile, stock, here, room);
  }
}
