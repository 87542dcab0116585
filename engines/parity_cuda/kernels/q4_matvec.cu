// q4_matvec: Q4_0 rows times one float row. Contract 1.3.
// Launch: any grid (blocks share the weight rows), whole warps, no fewer than share a row (a warp for 32
// blocks, 16 at most), dynamic shared memory by row_shapes.py; see q4_row.cuh. A chain belongs to one
// thread, so the grid cannot change the order.
#include "q4_row.cuh"

// Out of line: what the variants need must cost the exact tier no register.
template <int FIXED>
__device__ __noinline__ void q4_matvec_variants(const RowPlan<1> plan, int variants, float* shared) {
  row_tiles<1, FIXED>(plan, shared, variants);
}

extern "C" __global__ void __launch_bounds__(512, 1) q4_matvec(float* out, const unsigned short* d,
    const unsigned char* qs, const float* x, int variants, int rows, int nb, int tile) {
  extern __shared__ float shared[];
  const int from = row_share(rows, blockIdx.x, gridDim.x);
  const int to = row_share(rows, blockIdx.x + 1, gridDim.x);
  const RowPlan<1> plan = {{{out, d, qs, rows}}, x, {x, out, 0.0f, false},
                           {nullptr, nullptr, x}, nb, from, to, tile, false};
  // step 2: d * s, blocks ascending
  if (!(variants & (FMA | UNPAIRED))) {
    row_tiles<1, 0>(plan, shared, variants);
  } else if (!(variants & UNPAIRED)) {
    q4_matvec_variants<FMA>(plan, variants, shared);
  } else if (!(variants & FMA)) {
    q4_matvec_variants<UNPAIRED>(plan, variants, shared);
  } else {
    q4_matvec_variants<FMA | UNPAIRED>(plan, variants, shared);
  }
}
