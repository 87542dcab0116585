// row_input: the inputs of a projection in shared memory, normed where asked for. Contract 1.1, 5.
// A block of threads reads its row once. The norm's weights are on their way before the row is there.
#pragma once
#include "async_copy.cuh"
#include "norm.cuh"
#include "overlap.cuh"

#define ROW_PAD 36    // floats of a block of 32 inputs: 16-byte loads of a warp meet no bank twice
#define ROW_UNITS 2   // times eight columns that a thread keeps while the norm's root is made
#define TREE_THREADS 256
#define TREE_PARTS (TREE_THREADS / 32)

// What is done with x before it is multiplied: nothing, or the norm by w. out: where block 0 puts it.
struct RowNorm {
  const float* w;
  float* out;
  float eps;
  bool on;
};

// Whether the scaling of q4_row.cuh is exact for an input.
__device__ __forceinline__ bool row_fits(float v) {
  const unsigned size = __float_as_uint(v) & 0x7fffffffu;
  // LEAST and MOST: 2^-86 and 2^26
  return size == 0 || (size >= 0x14800000u && size <= 0x4c800000u);
}

// Eight values in a row of memory, at a multiple of 16 bytes.
struct Eight {
  float v[8];

  __device__ __forceinline__ void load(const float* from) {
    *(float4*)v = *(const float4*)from;
    *(float4*)(v + 4) = *(const float4*)(from + 4);
  }

  __device__ __forceinline__ void store(float* to) const {
    *(float4*)to = *(const float4*)v;
    *(float4*)(to + 4) = *(const float4*)(v + 4);
  }

  __device__ __forceinline__ void scale_by(float r, const Eight& w) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = normed(v[i], r, w.v[i]);
  }

  __device__ __forceinline__ bool fits() const {
    bool fit = true;
#pragma unroll
    for (int i = 0; i < 8; ++i) fit = fit && row_fits(v[i]);
    return fit;
  }
};

// The place of eight inputs, and the bit of their 32 blocks in a mask.
__device__ __forceinline__ int row_place(int unit) { return unit / 4 * ROW_PAD + unit % 4 * 8; }
__device__ __forceinline__ unsigned row_bit(int group) { return 1u << group % 32; }

// The sum of part[n], n a power of two, by the tree of tree.cuh, for every thread: part[i] takes
// part[i + n / 2] and so on. A thread goes through the levels that lie TREE_THREADS apart and more, a
// warp through the rest. The whole block must call it, after a barrier that made part complete.
__device__ __forceinline__ float row_tree(float* part, int n) {
  if (n < 2 * TREE_THREADS || blockDim.x < TREE_THREADS) return tree_sum(part, n);
  // step 1: x[i] = x[i] + x[i + n / 2], halving n
  if (threadIdx.x < TREE_THREADS)
    for (int half = n / 2; half >= TREE_THREADS; half /= 2)
      for (int i = threadIdx.x; i < half; i += TREE_THREADS)
        part[i] = __fadd_rn(part[i], part[i + half]);
  __syncthreads();
  float v[TREE_PARTS];
#pragma unroll
  for (int i = 0; i < TREE_PARTS; ++i) v[i] = part[threadIdx.x % 32 + 32 * i];
#pragma unroll
  for (int half = TREE_PARTS / 2; half > 0; half /= 2)
#pragma unroll
    for (int i = 0; i < half; ++i) v[i] = __fadd_rn(v[i], v[i + half]);
  for (int half = 16; half > 0; half /= 2)
    v[0] = __fadd_rn(v[0], __shfl_down_sync(0xffffffffu, v[0], half));
  return __shfl_sync(0xffffffffu, v[0], 0);
}

// The first units of this thread, all asked for at once.
__device__ __forceinline__ void load_units(Eight (&held)[ROW_UNITS], const float* from, int units) {
#pragma unroll
  for (int i = 0; i < ROW_UNITS; ++i) {
    const int unit = threadIdx.x + i * blockDim.x;
    if (unit < units) held[i].load(from + unit * 8);
  }
}

// Eight inputs to their place in `to`; in `unfit` the bit of their group is set where it is due.
__device__ __forceinline__ void put_inputs(const Eight& x, float* to, int unit, unsigned* unfit) {
  x.store(to + row_place(unit));
  if (!x.fits()) atomicOr(unfit, row_bit(unit / 128));
}

// The row as it is: RowInput::bring without a norm.
__device__ __forceinline__ void bring_row(float* to, const float* from, int units, unsigned* unfit) {
  wait_for_previous();
  let_next_start();
  Eight x[ROW_UNITS];
  load_units(x, from, units);
#pragma unroll
  for (int i = 0; i < ROW_UNITS; ++i) {
    const int unit = threadIdx.x + i * blockDim.x;
    if (unit < units) put_inputs(x[i], to, unit, unfit);
  }
#pragma unroll 2
  for (int unit = threadIdx.x + ROW_UNITS * blockDim.x; unit < units; unit += blockDim.x) {
    Eight one;
    one.load(from + unit * 8);
    put_inputs(one, to, unit, unfit);
  }
}

// A row and the norm's weights: what this thread has of them. units: columns / 8.
struct RowInput {
  Eight x[ROW_UNITS], w[ROW_UNITS];

  // Before the launch ahead has ended.
  __device__ __forceinline__ void ask_weights(const RowNorm& norm, int units) {
    load_units(w, norm.w, units);
    for (int unit = threadIdx.x + ROW_UNITS * blockDim.x; unit < units; unit += blockDim.x)
      prefetch_line(norm.w + unit * 8);
  }

  // 1 / root of the mean square, from the row, for every thread. part: shared memory of the root.
  __device__ __forceinline__ float find_root(const float* from, const RowNorm& norm, int variants,
                                             int units, float* part) {
    __shared__ float shared_factor[1];
    const bool tree = (variants & NORM_TREE) != 0;
    const int n = tree ? power_of_two(units * 8) : 0;
    for (int i = units * 8 + threadIdx.x; i < n; i += blockDim.x) part[i] = 0.0f;
    load_units(x, from, units);
#pragma unroll
    for (int i = 0; i < ROW_UNITS; ++i) {
      const int unit = threadIdx.x + i * blockDim.x;
      if (unit < units) put_squares(x[i], part, unit, tree);
    }
    for (int unit = threadIdx.x + ROW_UNITS * blockDim.x; unit < units; unit += blockDim.x) {
      Eight more;
      more.load(from + unit * 8);
      put_squares(more, part, unit, tree);
    }
    __syncthreads();
    if (tree) return mean_root(row_tree(part, n), units * 8, norm.eps, variants);
    if (threadIdx.x == 0) {
      const float ss = chain_sum(part, units, 0.0f);
      shared_factor[0] = mean_root(ss, units * 8, norm.eps, variants);
    }
    __syncthreads();
    return shared_factor[0];
  }

  __device__ __forceinline__ static void put_squares(const Eight& x, float* part, int unit, bool tree) {
    if (!tree) {
      part[unit] = eight_squares(x.v);
      return;
    }
    Eight squares;
#pragma unroll
    for (int i = 0; i < 8; ++i) squares.v[i] = __fmul_rn(x.v[i], x.v[i]);
    squares.store(part + unit * 8);
  }

  // The row of 8 * units columns to `to`, ROW_PAD floats a block of 32, and, normed, to norm.out by
  // block 0. part: shared memory for the root. Waits for the launch ahead; no thread may read `to`
  // before a barrier. The bits of the groups of 32 blocks that hold a value the scaling is not exact
  // for are set in `unfit`, which a barrier ahead of this has seen zero.
  __device__ __forceinline__ void bring(float* to, const float* from, const RowNorm& norm, int variants,
                                        int units, float* part, unsigned* unfit) {
    wait_for_previous();
    let_next_start();
    const float r = find_root(from, norm, variants, units, part);
#pragma unroll
    for (int i = 0; i < ROW_UNITS; ++i) {
      const int unit = threadIdx.x + i * blockDim.x;
      if (unit >= units) continue;
      x[i].scale_by(r, w[i]);
      put_inputs(x[i], to, unit, unfit);
      if (blockIdx.x == 0) x[i].store(norm.out + unit * 8);
    }
    for (int unit = threadIdx.x + ROW_UNITS * blockDim.x; unit < units; unit += blockDim.x) {
      Eight one, weight;
      one.load(from + unit * 8), weight.load(norm.w + unit * 8);
      one.scale_by(r, weight);
      put_inputs(one, to, unit, unfit);
      if (blockIdx.x == 0) one.store(norm.out + unit * 8);
    }
  }
};
