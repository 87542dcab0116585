// f32_row: rows of f32 matrices times one float row. Contract 1.5.
// A block takes a tile of at most 32 weight rows. Its warps make the products of a window of columns,
// while the first warp adds up those of the window before, a lane a row: a chain is one lane's, so
// neither the grid nor the tile can change its order.
#pragma once
#include "chain.cuh"

#define ROW_COLUMNS 512                // of a window
#define ROW_COLUMN_STRIDE (512 + 4)    // floats between two rows of products

// Products of columns from .. from + width of `height` rows (with fma: the weights themselves).
__device__ __forceinline__ void f32_products(float* to, const float* w, const float* x, int variants,
                                             int height, int cols, int from, int width,
                                             int thread, int threads) {
  const bool by_four = cols % 4 == 0 && (size_t)w % 16 == 0;
  if (by_four) {
#pragma unroll 8
    for (int i = thread; i < height * (ROW_COLUMNS / 4); i += threads) {
      const int row = i / (ROW_COLUMNS / 4), at = i % (ROW_COLUMNS / 4) * 4;
      if (at >= width) continue;
      const float4 a = __ldg((const float4*)(w + (long long)row * cols + from + at));
      const float4 b = *(const float4*)(x + from + at);
      float4 product = a;
      if (!(variants & FMA))
        product = make_float4(__fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y), __fmul_rn(a.z, b.z),
                              __fmul_rn(a.w, b.w));
      *(float4*)(to + row * ROW_COLUMN_STRIDE + at) = product;
    }
    return;
  }
  for (int i = thread; i < height * ROW_COLUMNS; i += threads) {
    const int row = i / ROW_COLUMNS, at = i % ROW_COLUMNS;
    if (at >= width) continue;
    const float a = w[(long long)row * cols + from + at];
    to[row * ROW_COLUMN_STRIDE + at] = variants & FMA ? a : __fmul_rn(a, x[from + at]);
  }
}

// The chain of this lane's row (lanes without one repeat the last), for all lanes of the first warp.
// w: the first of `height` rows; x: in shared memory; products: two windows of `height` rows. The whole
// block must call it.
__device__ __forceinline__ float f32_row(const float* w, const float* x, int variants, int height,
                                         int cols, float* products) {
  const int windows = (cols + ROW_COLUMNS - 1) / ROW_COLUMNS;
  // one warp alone does both in turn
  const bool alone = blockDim.x <= 32, maker = alone || threadIdx.x >= 32;
  const int thread = threadIdx.x - (alone ? 0 : 32), threads = blockDim.x - (alone ? 0 : 32);
  const int row = min((int)threadIdx.x % 32, height - 1);
  float acc = 0.0f;
  for (int i = 0; i <= windows; ++i) {
    float* to = products + i % 2 * height * ROW_COLUMN_STRIDE;
    const int from = i * ROW_COLUMNS;
    if (maker && i < windows)
      f32_products(to, w, x, variants, height, cols, from, min(ROW_COLUMNS, cols - from), thread,
                   threads);
    if (threadIdx.x < 32 && i > 0) {
      const float* made = products + (i - 1) % 2 * height * ROW_COLUMN_STRIDE + row * ROW_COLUMN_STRIDE;
      const int last = from - ROW_COLUMNS, width = min(ROW_COLUMNS, cols - last);
      acc = variants & FMA ? chain_dot<FMA>(made, x + last, width, acc) : chain_sum(made, width, acc);
    }
    __syncthreads();
  }
  return acc;
}
