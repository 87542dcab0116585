// route: the router's rows of one row of inputs, from shared memory. Contract 1.5, 2, 5.
#pragma once
#include "async_copy.cuh"
#include "norm.cuh"

// Asks for `count` rows of cols floats, `stride` (a multiple of 4) apart in shared memory; a group
// of copies by the whole block.
__device__ __forceinline__ void stage_floats(float* to, const float* from, int count, int cols,
                                             int stride) {
  const bool by_four = cols % 4 == 0 && (size_t)from % 16 == 0;
  const int step = by_four ? 4 : 1, width = cols / step;
  for (int row = 0; row < count; ++row)
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
      float* target = to + row * stride + i * step;
      const float* source = from + (long long)row * cols + i * step;
      if (by_four) {
        copy_16(target, source);
      } else {
        copy_4(target, source);
      }
    }
}

// out[i] = row i times x, one accumulator, ascending: a thread a row. The rows become products,
// which the whole block makes, so that a chain is additions alone. A barrier before it made both
// complete; x at a multiple of 16 bytes; both have room for cols rounded up to four.
__device__ __forceinline__ void chain_rows(float* out, float* rows, const float* x, int count,
                                           int cols, int stride, int variants) {
  const int row = threadIdx.x;
  if (variants & FMA) {
    if (row < count) out[row] = chain_dot<FMA>(rows + row * stride, x, cols, 0.0f);
    return;
  }
  for (int j = threadIdx.x * 4; j < cols; j += blockDim.x * 4) {
    const float4 b = *(const float4*)(x + j);  // what is past the end is there, and is not added
    for (int i = 0; i < count; ++i) {
      float4* at = (float4*)(rows + i * stride + j);
      const float4 a = *at;
      *at = make_float4(__fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y), __fmul_rn(a.z, b.z),
                        __fmul_rn(a.w, b.w));
    }
  }
  __syncthreads();
  if (row < count) out[row] = chain_sum(rows + row * stride, cols, 0.0f);
}

// --- sums by tree: x[i] = x[i] + x[i + n / 2], halving n, of products padded to a power of two -------

// The products w[j] * x[j] in part (cols padded, in floats; it may be w itself), halved as far as
// threads meet no element but their own. How many are left: the block's barrier must follow, then
// warp_tree.
__device__ __forceinline__ int halved_products(float* part, const float* w, const float* x,
                                               int cols) {
  const int threads = blockDim.x;
  int n = power_of_two(cols);
#pragma unroll 4
  for (int j = threadIdx.x; j < n; j += threads) part[j] = j < cols ? __fmul_rn(w[j], x[j]) : 0.0f;
  if (threads & (threads - 1)) return n;
  while (n > threads) {
    n /= 2;
#pragma unroll 4
    for (int j = threadIdx.x; j < n; j += threads) part[j] = __fadd_rn(part[j], part[j + n]);
  }
  return n;
}

// The rest, for the first lane of a warp.
__device__ __forceinline__ float warp_tree(float* part, int n) {
  const int lane = threadIdx.x % 32;
  while (n > 32) {
    n /= 2;
#pragma unroll 4
    for (int j = lane; j < n; j += 32) part[j] = __fadd_rn(part[j], part[j + n]);
  }
  float sum = lane < n ? part[lane] : 0.0f;
  while (n > 1) {
    n /= 2;
    sum = __fadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, n));
  }
  return sum;
}

// out[i] = row i times x, by tree, in place; stride: at least cols padded. A barrier before it made
// x complete.
__device__ __forceinline__ void tree_rows(float* out, float* rows, const float* x, int count,
                                          int cols, int stride) {
  int left = 0;
  for (int i = 0; i < count; ++i)
    left = halved_products(rows + i * stride, rows + i * stride, x, cols);
  __syncthreads();
  for (int i = threadIdx.x / 32; i < count; i += blockDim.x / 32) {
    const float sum = warp_tree(rows + i * stride, left);
    if (threadIdx.x % 32 == 0) out[i] = sum;
  }
}

// --- a guess ----------------------------------------------------------------------------------------

// out[i] = the sum of row i times x times w, in whatever order is quick. The root of the norm is left
// out, for it changes no order of the sums. w and the rows came by copies of the whole block, which
// are waited for here; part: a float for each warp and row.
__device__ __forceinline__ void guessed_rows(float* out, const float* rows, const float* x, float* w,
                                             float* part, int count, int cols, int stride) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  copy_wait<0>();
  __syncthreads();
#pragma unroll 8
  for (int j = threadIdx.x; j < cols; j += blockDim.x) w[j] = __fmul_rn(w[j], x[j]);
  for (int i = 0; i < count; ++i) {
    float sum = 0.0f;
#pragma unroll 8
    for (int j = threadIdx.x; j < cols; j += blockDim.x)
      sum = __fadd_rn(sum, __fmul_rn(rows[i * stride + j], w[j]));
#pragma unroll
    for (int by = 16; by > 0; by /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, by));
    if (lane == 0) part[i * warps + warp] = sum;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    float sum = 0.0f;
#pragma unroll 8
    for (int one = 0; one < warps; ++one) sum = __fadd_rn(sum, part[i * warps + one]);
    out[i] = sum;
  }
}
