// project: one float row, normed or not, times several matrices, and what is made of the products
// element by element. Contract 1.1, 1.3, 1.5, 1.9, 2 (the residual), 5.
// Launch: grid (f32_blocks, then any number), sides of `across` whole warps, 15 of more than one at most;
// dynamic shared memory by row_shapes.py. The first blocks take tiles of f32 rows, whose chains are
// long and whose weights are there before the row is, the others Q4_0 rows. A chain belongs to one
// thread, so the grid cannot change the order.
#pragma once
#include "q4_row.cuh"
#include "route.cuh"

#define PROJECT_Q4 3
#define PROJECT_F32 4
#define WITH_NORM 1
#define WITH_ACT 2
#define WITH_TOTAL 4

struct FloatMatrix {
  float* out;
  const float* w;
  int rows;
};

// What a launch is given. rows: 0 where there is no such matrix.
struct Project {
  RowMatrix q4[PROJECT_Q4];
  FloatMatrix f32[PROJECT_F32];
  const float* x;
  RowNorm norm;
  RowEnd end;
  int cols, f32_blocks, f32_tile, tile, kept, across, ring;
};

__device__ __forceinline__ float row_factor(const float* x, float eps, int variants, int cols,
                                            float* part) {
  return variants & NORM_TREE ? tree_row_root(x, part, eps, variants, cols)
                              : row_root(x, part, eps, variants, cols);
}

// A tile of rows of one f32 matrix.
__device__ __forceinline__ void project_floats(const Project& p, int variants, float* shared) {
  FloatMatrix found = p.f32[0];
  int first = (int)blockIdx.x * p.f32_tile;
#pragma unroll
  for (int i = 0; i < PROJECT_F32 - 1; ++i)
    if (first >= found.rows && p.f32[i + 1].rows > 0) {
      first -= (found.rows + p.f32_tile - 1) / p.f32_tile * p.f32_tile;
      found = p.f32[i + 1];
    }
  const int height = min(p.f32_tile, found.rows - first), whole = (p.cols + 3) / 4 * 4;
  const int stride = whole + 4;
  float *rows = shared, *inputs = rows + p.f32_tile * stride;
  if (p.norm.on)  // its weights, where the inputs will stand
    for (int j = threadIdx.x; j < p.cols; j += blockDim.x) copy_4(inputs + j, p.norm.w + j);
  stage_floats(rows, found.w + (long long)first * p.cols, height, p.cols, stride);
  copy_commit();
  wait_for_previous();
  let_next_start();
  float r = 0.0f;
  if (p.norm.on) r = row_factor(p.x, p.norm.eps, variants, p.cols, inputs + whole);
  copy_wait<0>();
  for (int j = threadIdx.x; j < p.cols; j += blockDim.x) {
    float v = p.x[j];
    if (p.norm.on) {
      v = normed(v, r, inputs[j]);
      if (blockIdx.x == 0) p.norm.out[j] = v;
    }
    inputs[j] = v;
  }
  __syncthreads();
  chain_rows(found.out + first, rows, inputs, height, p.cols, stride, variants);
  const int row = first + threadIdx.x;  // made by this thread
  if (p.end.total && (int)threadIdx.x < height)
    p.end.total[row] = __fadd_rn(p.end.base[row], found.out[row]);
}

// The Q4_0 rows of a block. FIXED: fma and unpaired as the mask has them.
template <int FIXED, bool FEW>
__device__ __forceinline__ void project_q4(const Project& p, int variants, float* shared) {
  const bool pairs = p.end.act != nullptr;
  const int units = (p.q4[0].rows + p.q4[1].rows + p.q4[2].rows) >> (int)pairs;
  int from, to;
  row_side_share(units, blockIdx.x - p.f32_blocks, gridDim.x - p.f32_blocks, p.across, from, to);
  const RowPlan<PROJECT_Q4> plan = {
      {p.q4[0], p.q4[1], p.q4[2]}, p.end, p.cols / 32, from << (int)pairs, to << (int)pairs,
      p.tile, p.kept, p.across, p.ring, pairs};
  row_normed<PROJECT_Q4, FIXED, FEW>(plan, p.x, p.norm, shared, variants);
}

// A block of a launch; with FEW there are no f32 rows. A mask that is a constant leaves one of these.
template <bool FEW>
__device__ __forceinline__ void project_block(const Project& p, int variants, float* shared) {
  if (!FEW && (int)blockIdx.x < p.f32_blocks) {
    project_floats(p, variants, shared);
  } else if (variants & ZERO_POINT) {
    if (variants & FMA) {
      project_q4<ZERO_POINT | FMA, FEW>(p, variants, shared);
    } else {
      project_q4<ZERO_POINT, FEW>(p, variants, shared);
    }
  } else if (variants & UNPAIRED) {
    if (variants & FMA) {
      project_q4<UNPAIRED | FMA, FEW>(p, variants, shared);
    } else {
      project_q4<UNPAIRED, FEW>(p, variants, shared);
    }
  } else if (variants & FMA) {
    project_q4<FMA, FEW>(p, variants, shared);
  } else {
    project_q4<0, FEW>(p, variants, shared);
  }
}
