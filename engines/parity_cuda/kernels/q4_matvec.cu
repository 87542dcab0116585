// q4_matvec: Q4_0 rows times one float row. Contract 1.3.
// Launch: any grid (blocks share the weight rows), sides of `across` whole warps, dynamic shared memory by
// row_shapes.py; see q4_row.cuh. A chain belongs to one thread, so the grid cannot change the order.
#include "q4_row.cuh"

// Out of line: what the variants need must cost the exact tier no register.
template <int FIXED>
__device__ __noinline__ void q4_matvec_variants(const RowPlan<1> plan, const float* x, int variants,
                                                float* shared) {
  row_plain<1, FIXED>(plan, x, shared, variants);
}

extern "C" __global__ void __launch_bounds__(384, 1) q4_matvec(float* out, const unsigned short* d,
    const unsigned char* qs, const float* x, int variants, int rows, int nb, int tile, int kept,
    int across) {
  extern __shared__ float shared[];
  int from, to;
  row_side_share(rows, blockIdx.x, gridDim.x, across, from, to);
  const RowPlan<1> plan = {{{out, d, qs, rows}}, {nullptr, nullptr, x}, nb, from, to, tile, kept,
                           across, ROW_RING, false};
  // step 2: d * s, blocks ascending
  if (variants & ZERO_POINT) {
    if (variants & FMA) {
      q4_matvec_variants<ZERO_POINT | FMA>(plan, x, variants, shared);
    } else {
      q4_matvec_variants<ZERO_POINT>(plan, x, variants, shared);
    }
  } else if (!(variants & (FMA | UNPAIRED))) {
    row_plain<1, 0>(plan, x, shared, variants);
  } else if (!(variants & UNPAIRED)) {
    q4_matvec_variants<FMA>(plan, x, variants, shared);
  } else if (!(variants & FMA)) {
    q4_matvec_variants<UNPAIRED>(plan, x, variants, shared);
  } else {
    q4_matvec_variants<FMA | UNPAIRED>(plan, x, variants, shared);
  }
}
