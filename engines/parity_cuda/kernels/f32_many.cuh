// f32_many: f32 rows times M float rows, each weight read once. Contract 1.5.
// A block takes a tile of weight rows, no more than 32 chains. Its warps make the products of a window
// of columns, while the first warp adds up those of the window before, a lane a row and input: a chain
// is one lane's, so neither the grid, nor the window, nor M can change its order.
#pragma once
#include "chain.cuh"

#define F32_COLUMNS 512                  // of a window
#define F32_STRIDE (F32_COLUMNS + 4)     // floats between two chains' products

// What all windows share: w, x: of this block, `tile` and `count` rows; shared: two windows of
// `stage` floats.
struct F32Many {
  const float *w, *x;
  float* shared;
  int cols, tile, count, stage;

  __device__ float* products(int number) const { return shared + number % 2 * stage; }
  __device__ int width(int number) const { return min(F32_COLUMNS, cols - number * F32_COLUMNS); }
};

// Four of a row from column j on, zeros past the end.
template <bool BY_FOUR>
__device__ __forceinline__ float4 four_columns(const F32Many& t, const float* row, int j) {
  if (BY_FOUR) return __ldg((const float4*)(row + j));
  return make_float4(row[j], j + 1 < t.cols ? row[j + 1] : 0.0f,
                     j + 2 < t.cols ? row[j + 2] : 0.0f, j + 3 < t.cols ? row[j + 3] : 0.0f);
}

// Products of a window, by row and input; all warps but the first.
template <bool BY_FOUR>
__device__ __forceinline__ void many_products(const F32Many& t, int number) {
  constexpr int FOURS = F32_COLUMNS / 4;
  const int from = number * F32_COLUMNS, width = t.width(number);
#pragma unroll 4
  for (int u = threadIdx.x - 32; u < t.tile * t.count * FOURS; u += blockDim.x - 32) {
    const int chain = u / FOURS, at = u % FOURS * 4, row = chain / t.count, m = chain - row * t.count;
    if (at >= width) continue;
    const float4 a = four_columns<BY_FOUR>(t, t.w + (long long)row * t.cols, from + at);
    const float4 b = four_columns<BY_FOUR>(t, t.x + (long long)m * t.cols, from + at);
    *(float4*)(t.products(number) + chain * F32_STRIDE + at) = make_float4(
        __fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y), __fmul_rn(a.z, b.z), __fmul_rn(a.w, b.w));
  }
}

// With fma a chain multiplies: weights, then inputs, as they are.
template <bool BY_FOUR>
__device__ __forceinline__ void many_copies(const F32Many& t, int number) {
  constexpr int FOURS = F32_COLUMNS / 4;
  const int from = number * F32_COLUMNS, width = t.width(number);
#pragma unroll 4
  for (int u = threadIdx.x - 32; u < (t.tile + t.count) * FOURS; u += blockDim.x - 32) {
    const int row = u / FOURS, at = u % FOURS * 4;
    if (at >= width) continue;
    const float* source = row < t.tile ? t.w + (long long)row * t.cols
                                       : t.x + (long long)(row - t.tile) * t.cols;
    *(float4*)(t.products(number) + row * F32_STRIDE + at) =
        four_columns<BY_FOUR>(t, source, from + at);
  }
}

template <bool BY_FOUR>
__device__ __forceinline__ void many_window(const F32Many& t, int number, int variants) {
  if (variants & FMA) {
    many_copies<BY_FOUR>(t, number);
  } else {
    many_products<BY_FOUR>(t, number);
  }
}

// out: (M, rows); w: (rows, cols); x: (M, cols); shared: as tuning.py sizes it.
__device__ __forceinline__ void f32_many(float* out, const float* w, const float* x, int variants,
                                         int rows, int cols, int count, float* shared) {
  const int most = (rows + gridDim.x - 1) / gridDim.x, first = blockIdx.x * most;
  if (first >= rows) return;
  const int tile = min(most, rows - first);
  const bool by_four = cols % 4 == 0 && ((size_t)w | (size_t)x) % 16 == 0;
  const F32Many t = {w + (long long)first * cols, x, shared, cols, tile, count,
                     max(most * count, most + count) * F32_STRIDE};
  const int windows = (cols + F32_COLUMNS - 1) / F32_COLUMNS;
  const int chain = min((int)threadIdx.x, tile * count - 1), row = chain / count, m = chain % count;
  float acc = 0.0f;
  for (int i = 0; i <= windows; ++i) {
    if (threadIdx.x >= 32) {
      if (i < windows && by_four) many_window<true>(t, i, variants);
      if (i < windows && !by_four) many_window<false>(t, i, variants);
    } else if (i > 0) {
      const float* made = t.products(i - 1);
      const int width = t.width(i - 1);
      acc = variants & FMA ? chain_dot<FMA>(made + row * F32_STRIDE,
                                            made + (tile + m) * F32_STRIDE, width, acc)
                           : chain_sum(made + chain * F32_STRIDE, width, acc);
    }
    __syncthreads();
  }
  if (threadIdx.x < tile * count) out[(long long)m * rows + first + row] = acc;
}
