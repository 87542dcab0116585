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

// w[0] * x[0] + ... + w[cols - 1] * x[cols - 1] by tree, by the whole block; part: cols padded to a
// power of two, in floats; it may be w itself.
__device__ __forceinline__ float tree_dot(float* part, const float* w, const float* x, int cols) {
  const int n = power_of_two(cols);
  for (int j = threadIdx.x; j < n; j += blockDim.x)
    part[j] = j < cols ? __fmul_rn(w[j], x[j]) : 0.0f;
  __syncthreads();
  return tree_sum(part, n);
}

// The same summed by tree, in place; stride: at least cols padded to a power of two.
__device__ __forceinline__ void tree_rows(float* out, float* rows, const float* x, int count,
                                          int cols, int stride) {
  for (int i = 0; i < count; ++i) {
    float* row = rows + i * stride;
    const float sum = tree_dot(row, row, x, cols);
    if (threadIdx.x == 0) out[i] = sum;
  }
}
