// fused_route: norm of a row, its int16 form, and the router's rows. Contract 1.1, 1.4, 1.5, 2.
// Launch: grid (tiles of router rows, then `makers` blocks that write the normed row and its int16),
// 256 threads, dynamic shared memory by fused/experts.py: the tile's rows `stride` floats apart, the
// normed row, room for the norm. Each block makes the whole norm for itself, in the contract's order,
// and a sum belongs to one block: the grid cannot change the order.
// by_tree: the logits' products are summed by tree, for router_tree or as a guess (topk.cuh).
#include "overlap.cuh"
#include "int16.cuh"
#include "route.cuh"

extern "C" __global__ void __launch_bounds__(256) fused_route(float* fnrm, short* q, float* scale,
    float* logits, const float* ores, const float* norm, const float* router, float eps,
    int variants, int by_tree, int experts, int hidden, int stride, int makers) {
  extern __shared__ float shared[];
  const int tiles = gridDim.x - makers, most = (experts + tiles - 1) / tiles;
  const int first = blockIdx.x * most, tile = min(most, experts - first);
  const int maker = blockIdx.x - tiles, warps = blockDim.x / 32;
  float *x = shared + most * stride, *part = x + (hidden + 3) / 4 * 4;
  if (maker < 0) stage_floats(shared, router + (long long)first * hidden, tile, hidden, stride);
  stage_floats(x, norm, 1, hidden, 0);
  copy_commit();
  wait_for_previous();
  let_next_start();
  // step 1: the norm
  const float r = variants & NORM_TREE ? tree_row_root(ores, part, eps, variants, hidden)
                                       : row_root(ores, part, eps, variants, hidden);
  copy_wait<0>();
  __syncthreads();
  for (int j = threadIdx.x; j < hidden; j += blockDim.x) {
    x[j] = normed(ores[j], r, x[j]);
    if (maker == 0) fnrm[j] = x[j];
  }
  __syncthreads();
  // step 2: int16, a warp a block of 32
  if (maker >= 0) {
    for (int b = maker * warps + threadIdx.x / 32; b < hidden / 32; b += makers * warps) {
      const int at = b * 32 + threadIdx.x % 32;
      float s;
      q[at] = quantised16(x[at], s, variants);
      if (threadIdx.x % 32 == 0) scale[b] = s;
    }
    return;
  }
  // step 3: the router's rows
  if (by_tree) {
    tree_rows(logits + first, shared, x, tile, hidden, stride);
  } else {
    chain_rows(logits + first, shared, x, tile, hidden, stride, variants);
  }
}
