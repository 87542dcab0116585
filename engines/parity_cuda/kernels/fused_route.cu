// fused_route: norm of a row, its int16 form, and the router's rows. Contract 1.1, 1.4, 1.5, 2.
// Launch: grid (`makers` blocks that write 256 elements of the normed row and their int16, then tiles
// of router rows), 256 threads, dynamic shared memory by fused/experts.py: the tile's rows `stride`
// floats apart, the normed row, room for sums. Who needs the norm makes the whole of it for itself, in
// the contract's order, and a sum belongs to one block: the grid cannot change the order.
// The logits choose the experts at first (topk.cuh), and are not normed; under router_tree they are the
// contract's.
#include "overlap.cuh"
#include "int16.cuh"
#include "route.cuh"

// 1 / root of the mean square of the row, for every thread. Contract 1.1, 5. part: under norm_tree
// hidden padded to a power of two, in floats.
__device__ __forceinline__ float any_row_root(const float* ores, float* part, float eps,
                                              int variants, int hidden) {
  if (!(variants & NORM_TREE)) return row_root(ores, part, eps, variants, hidden);
  const int left = halved_values(part, hidden, TreeProduct{ores, ores});
  __syncthreads();
  return mean_root(warp_tree(part, left), hidden, eps, variants);  // each warp for itself
}

// A thread an element, a warp a block of 32.
__device__ __forceinline__ void make_row(float* fnrm, short* q, float* scale, const float* ores,
                                         const float* norm, float* part, float eps, int variants,
                                         int hidden) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  const bool there = j < hidden;
  const float w = there ? norm[j] : 0.0f;
  wait_for_previous();
  let_next_start();
  const float x = there ? ores[j] : 0.0f;
  // step 1: the norm
  const float value = normed(x, any_row_root(ores, part, eps, variants, hidden), w);
  if (there) fnrm[j] = value;
  // step 2: int16
  float s;
  const short whole = quantised16(value, s, variants);
  if (there) q[j] = whole;
  if (there && threadIdx.x % 32 == 0) scale[j / 32] = s;
}

extern "C" __global__ void __launch_bounds__(256, 5) fused_route(float* fnrm, short* q, float* scale,
    float* logits, const float* ores, const float* norm, const float* router, float eps,
    int variants, int experts, int hidden, int stride, int makers) {
  variants = KNOWN(variants);
  extern __shared__ float shared[];
  const int tiles = gridDim.x - makers, most = (experts + tiles - 1) / tiles;
  float *x = shared + most * stride, *part = x + (hidden + 3) / 4 * 4;
  if (blockIdx.x < makers) {
    make_row(fnrm, q, scale, ores, norm, part, eps, variants, hidden);
    return;
  }
  const int first = (blockIdx.x - makers) * most, tile = min(most, experts - first);
  stage_floats(shared, router + (long long)first * hidden, tile, hidden, stride);
  stage_floats(x, norm, 1, hidden, 0);
  copy_commit();
  wait_for_previous();
  let_next_start();
  // step 3: the router's rows
  if (!(variants & ROUTER_TREE)) {
    guessed_rows(logits + first, shared, ores, x, part, tile, hidden, stride);
    return;
  }
  copy_wait<0>();  // for the whole block: there is a barrier before the root
  const float r = any_row_root(ores, part, eps, variants, hidden);
  for (int from = threadIdx.x; from < hidden; from += ROUTE_HELD * blockDim.x) {
    float held[ROUTE_HELD];
    load_held(held, ores, from, hidden);
#pragma unroll
    for (int i = 0; i < ROUTE_HELD; ++i) {
      const int j = from + i * blockDim.x;
      if (j < hidden) x[j] = normed(held[i], r, x[j]);
    }
  }
  tree_rows(logits + first, shared, x, tile, hidden, stride);
}
