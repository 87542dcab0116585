// f32_rows: f32 rows times M float rows, each weight read once. Contract 1.5.
// A block owns a tile of at most 32 weight rows; warp m goes through the columns for input m, a lane
// a weight row: a chain is one lane's, so neither the grid nor M can change its order. Columns come
// in windows, copied by a warp of their own while the windows before are added up.
#pragma once
#include "async_copy.cuh"
#include "chain.cuh"

#define F32_STAGES 4

// Columns of a window, a power of two: 2,048 weights, from 64 to 512 columns. ops.py sizes the
// memory by it.
__device__ __forceinline__ int f32_window(int tile, int count) {
  const int most = max(tile, count);
  return most <= 4 ? 512 : most <= 8 ? 256 : most <= 16 ? 128 : 64;
}

// Copies columns from .. from + width of `count` rows, `cols` apart, to rows `stride` apart; a warp.
__device__ __forceinline__ void f32_stage(float* to, const float* rows, int count, int cols,
                                          int from, int width, int window, int stride,
                                          bool by_four) {
  const int shift = 31 - __clz(window) - (by_four ? 2 : 0), step = by_four ? 4 : 1;
  for (int i = threadIdx.x; i < count << shift; i += 32) {
    const int row = i >> shift, at = (i - (row << shift)) * step;
    if (at >= width) continue;
    float* target = to + row * stride + at;
    const float* source = rows + (long long)row * cols + from + at;
    if (by_four) {
      copy_16(target, source);
    } else {
      copy_4(target, source);
    }
  }
}

// out: (M, rows) of this block's M inputs; w: (rows, cols); x: (M, cols); blockDim (32, M + 1).
__device__ __forceinline__ void f32_rows(float* out, const float* w, const float* x, int variants,
                                         int rows, int cols, float* shared) {
  const int most = (rows + gridDim.x - 1) / gridDim.x, first = blockIdx.x * most;
  if (first >= rows) return;
  const int tile = min(most, rows - first), count = blockDim.y - 1, m = threadIdx.y;
  const int window = f32_window(most, count), stride = window + 4;
  const int stage = tile * stride + count * window, windows = (cols + window - 1) / window;
  // 16 bytes at a time where every row and the last window allow it
  const bool by_four = cols % 4 == 0 && ((size_t)w | (size_t)x) % 16 == 0;
  w += (long long)first * cols;
  const int row = min((int)threadIdx.x, tile - 1);  // lanes without a row repeat the last
  float acc = 0.0f;
  for (int i = 0; i < windows + F32_STAGES - 1; ++i) {
    const int ready = i - (F32_STAGES - 1);
    if (m == count) {
      if (i < windows) {
        float* to = shared + i % F32_STAGES * stage;
        const int from = i * window, width = min(window, cols - from);
        f32_stage(to, w, tile, cols, from, width, window, stride, by_four);
        f32_stage(to + tile * stride, x, count, cols, from, width, window, window, by_four);
      }
      copy_commit();
      copy_wait<F32_STAGES - 2>();
    } else if (ready >= 0) {
      const float* from = shared + ready % F32_STAGES * stage;
      const float* inputs = from + tile * stride + m * window;
      const int width = min(window, cols - ready * window);
      acc = variants & FMA ? chain_dot<FMA>(from + row * stride, inputs, width, acc)
                           : chain_dot<0>(from + row * stride, inputs, width, acc);
    }
    __syncthreads();
  }
  if (m < count && threadIdx.x < tile) out[(long long)m * rows + first + threadIdx.x] = acc;
}
