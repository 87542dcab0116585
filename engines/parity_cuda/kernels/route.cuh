// route: the router's rows of one row of inputs, from shared memory. Contract 1.5, 2, 5.
#pragma once
#include "async_copy.cuh"
#include "norm.cuh"

#define ROUTE_HELD 8  // values that a thread has in registers

// x[from], x[from + threads] and so on, +0.0 from cols on. A condition that ends a loop would make each
// wait for the one before.
__device__ __forceinline__ void load_held(float (&held)[ROUTE_HELD], const float* x, int from, int cols) {
#pragma unroll
  for (int i = 0; i < ROUTE_HELD; ++i) {
    const int j = from + i * blockDim.x;
    held[i] = j < cols ? x[j] : 0.0f;
  }
}

// Asks for `count` rows of cols floats, `stride` (a multiple of 4) apart in shared memory; a group
// of copies by the whole block.
__device__ __forceinline__ void stage_floats(float* to, const float* from, int count, int cols,
                                             int stride) {
  const bool by_four = cols % 4 == 0 && (size_t)from % 16 == 0;
  const int step = by_four ? 4 : 1, width = cols / step;
#pragma unroll 1
  for (int row = 0; row < count; ++row)
#pragma unroll 2
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
#pragma unroll 2
  for (int j = threadIdx.x * 4; j < cols; j += blockDim.x * 4) {
    const float4 b = *(const float4*)(x + j);  // what is past the end is there, and is not added
#pragma unroll 4
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

// --- sums by tree: x[i] = x[i] + x[i + n / 2], halving n, of values padded to a power of two ---------
// Blocks of at most 32 * ROUTE_HELD threads, a power of two of them.

// The halvings of m values, a power of two or none, of one thread.
__device__ __forceinline__ float halved(float (&x)[ROUTE_HELD], int m) {
#pragma unroll
  for (int by = ROUTE_HELD / 2; by > 0; by /= 2)
    if (m > by)
#pragma unroll
      for (int i = 0; i < by; ++i) x[i] = __fadd_rn(x[i], x[i + by]);
  return x[0];
}

// value(j), j < cols, halved as far as threads meet no value but their own; what is left goes to part
// (cols padded, in floats; value may read what lies there). How many: the block's barrier must follow,
// then warp_tree.
template <class Value>
__device__ __forceinline__ int halved_values(float* part, int cols, const Value& value) {
  const int threads = blockDim.x, me = threadIdx.x;
  int n = power_of_two(cols);
  float held[ROUTE_HELD];
  if (n <= ROUTE_HELD * threads) {
#pragma unroll
    for (int i = 0; i < ROUTE_HELD; ++i)
      held[i] = me + i * threads < cols ? value(me + i * threads) : 0.0f;
  } else {
    for (int j = me; j < n; j += threads) part[j] = j < cols ? value(j) : 0.0f;
    while (n > ROUTE_HELD * threads) {
      n /= 2;
      for (int j = me; j < n; j += threads) part[j] = __fadd_rn(part[j], part[j + n]);
    }
#pragma unroll
    for (int i = 0; i < ROUTE_HELD; ++i) held[i] = part[me + i * threads];
  }
  const float sum = halved(held, n / threads);
  n = min(n, threads);
  if (me < n) part[me] = sum;
  return n;
}

// The rest, for every lane of a warp.
__device__ __forceinline__ float warp_tree(const float* part, int n) {
  const int lane = threadIdx.x % 32;
  float held[ROUTE_HELD];
#pragma unroll
  for (int i = 0; i < ROUTE_HELD; ++i) held[i] = lane + 32 * i < n ? part[lane + 32 * i] : 0.0f;
  float sum = halved(held, n / 32);
#pragma unroll
  for (int by = 16; by > 0; by /= 2)
    if (n > by) sum = __fadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, by));
  return __shfl_sync(0xffffffffu, sum, 0);
}

// What is summed: w[j] * x[j].
struct TreeProduct {
  const float *w, *x;

  __device__ float operator()(int j) const { return __fmul_rn(w[j], x[j]); }
};

// out[i] = row i times x, by tree, in place; stride: at least cols padded. A thread reads no x but
// those of its own number modulo the threads.
__device__ __forceinline__ void tree_rows(float* out, float* rows, const float* x, int count,
                                          int cols, int stride) {
  int left = 0;
  for (int i = 0; i < count; ++i)
    left = halved_values(rows + i * stride, cols, TreeProduct{rows + i * stride, x});
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
  const int step = ROUTE_HELD * blockDim.x;
  float one[ROUTE_HELD], other[ROUTE_HELD];
#pragma unroll 1
  for (int from = threadIdx.x; from < cols; from += step) {
    load_held(one, x, from, cols);
    load_held(other, w, from, cols);
#pragma unroll
    for (int i = 0; i < ROUTE_HELD; ++i)
      if (from + i * blockDim.x < cols) w[from + i * blockDim.x] = __fmul_rn(one[i], other[i]);
  }
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    float sum = 0.0f;
#pragma unroll 1
    for (int from = threadIdx.x; from < cols; from += step) {
      load_held(one, rows + i * stride, from, cols);
      load_held(other, w, from, cols);
#pragma unroll
      for (int k = 0; k < ROUTE_HELD; ++k) sum = __fadd_rn(sum, __fmul_rn(one[k], other[k]));
    }
#pragma unroll
    for (int by = 16; by > 0; by /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, by));
    if (lane == 0) part[i * warps + warp] = sum;
  }
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    float sum = 0.0f;
#pragma unroll 8
    for (int one = 0; one < warps; ++one) sum = __fadd_rn(sum, part[i * warps + one]);
    out[i] = sum;
  }
}
