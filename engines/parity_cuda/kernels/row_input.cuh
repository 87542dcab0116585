// row_input: the inputs of a projection in shared memory, normed where asked for. Contract 1.1, 5.
// A block of threads reads its row once. The norm's weights are on their way before the row is there.
#pragma once
#include "async_copy.cuh"
#include "norm.cuh"
#include "overlap.cuh"

#define ROW_PAD 36    // floats of a block of 32 inputs: 16-byte loads of a warp meet no bank twice
#define ROW_UNITS 2   // times eight columns that a thread asks for at once
#define ROW_FLAGS 32  // marks of groups of 32 blocks, counted round
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
  return (size == 0) | ((size >= 0x14800000u) & (size <= 0x4c800000u));
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
    for (int i = 0; i < 8; ++i) fit = fit & row_fits(v[i]);
    return fit;
  }
};

// The place of eight inputs, and that of the mark of their group.
__device__ __forceinline__ int row_place(int unit) { return unit / 4 * ROW_PAD + unit % 4 * 8; }
__device__ __forceinline__ int row_flag(int group) { return group % ROW_FLAGS; }

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

// A row on its way to shared memory. inputs: where it stands, ROW_PAD floats a block of 32; part: room for
// the norm's root, and `weights` for its weights; unfit: marks of the groups of 32 blocks that hold a
// value the scaling is not exact for, which a barrier ahead of `bring` has seen zero.
struct RowInput {
  float *inputs, *part, *weights;
  unsigned* unfit;
  int units;  // columns / 8

  // The norm's weights: copies of the group that the caller commits. Before the launch ahead has ended.
  __device__ __forceinline__ void ask_weights(const RowNorm& norm) const {
#pragma unroll 1
    for (int unit = threadIdx.x; unit < units; unit += blockDim.x) {
      copy_16(weights + unit * 8, norm.w + unit * 8);
      copy_16(weights + unit * 8 + 4, norm.w + unit * 8 + 4);
    }
  }

  __device__ __forceinline__ void mark(const Eight& x, int unit) const {
    // atomic: other threads may mark the same group
    if (!x.fits()) atomicExch(unfit + row_flag(unit / 128), 1u);
  }

  __device__ __forceinline__ void put_squares(const Eight& x, int unit, bool tree) const {
    if (!tree) {
      part[unit] = eight_squares(x.v);
      return;
    }
    Eight squares;
#pragma unroll
    for (int i = 0; i < 8; ++i) squares.v[i] = __fmul_rn(x.v[i], x.v[i]);
    squares.store(part + unit * 8);
  }

  // The row as it is, and what the root is made of.
  __device__ __forceinline__ void take(const float* from, bool norm, bool tree) const {
#pragma unroll 1
    for (int first = threadIdx.x; first < units; first += ROW_UNITS * blockDim.x) {
      Eight x[ROW_UNITS];
#pragma unroll
      for (int i = 0; i < ROW_UNITS; ++i) {
        const int unit = first + i * blockDim.x;
        if (unit < units) x[i].load(from + unit * 8);
      }
#pragma unroll
      for (int i = 0; i < ROW_UNITS; ++i) {
        const int unit = first + i * blockDim.x;
        if (unit >= units) continue;
        x[i].store(inputs + row_place(unit));
        if (norm) {
          put_squares(x[i], unit, tree);
        } else {
          mark(x[i], unit);
        }
      }
    }
  }

  // 1 / root of the mean square, for every thread, from what `take` has left.
  __device__ __forceinline__ float root(float eps, int variants, int n) const {
    __shared__ float shared_factor[1];
    __syncthreads();
    if (variants & NORM_TREE) return mean_root(row_tree(part, n), units * 8, eps, variants);
    if (threadIdx.x == 0)
      shared_factor[0] = mean_root(chain_sum(part, units, 0.0f), units * 8, eps, variants);
    __syncthreads();
    return shared_factor[0];
  }

  // The row to `inputs`, normed where asked for, and then to norm.out by block 0. Waits for the launch
  // ahead; no other thread may read it before a barrier. weights_there: waits for ask_weights.
  template <class Wait>
  __device__ __forceinline__ void bring(const float* from, const RowNorm& norm, int variants,
                                        const Wait& weights_there) const {
    wait_for_previous();
    let_next_start();
    const bool tree = norm.on && (variants & NORM_TREE);
    const int n = tree ? power_of_two(units * 8) : 0;
    for (int i = units * 8 + threadIdx.x; i < n; i += blockDim.x) part[i] = 0.0f;
    take(from, norm.on, tree);
    if (!norm.on) return;
    const float r = root(norm.eps, variants, n);
    weights_there();
#pragma unroll 1
    for (int unit = threadIdx.x; unit < units; unit += blockDim.x) {
      Eight x, w;
      x.load(inputs + row_place(unit)), w.load(weights + unit * 8);
      x.scale_by(r, w);
      x.store(inputs + row_place(unit));
      mark(x, unit);
      if (blockIdx.x == 0) x.store(norm.out + unit * 8);
    }
  }
};
