// f32_matvec_rows: f32_matvec for M rows, each weight read once for all of them. Contract 1.5.
// Launch: grid (blocks of WEIGHT_ROWS weight rows), block (WEIGHT_ROWS, M): M is the shape of the
// block, never an argument. A tile of weights is staged in shared memory and used by all M rows; a
// chain belongs to one thread, so M cannot change the order.
#include "variants.cuh"

#define WEIGHT_ROWS 32
#define COLS 32

// 1,024 threads at most: the compiler must leave room for 32 rows in one block.
extern "C" __global__ void __launch_bounds__(1024) f32_matvec_rows(float* out,
    const float* w, const float* x, int variants,
    int rows, int cols) {
  __shared__ float tile[WEIGHT_ROWS * COLS];
  const int r = blockIdx.x * WEIGHT_ROWS + threadIdx.x;
  const int m = threadIdx.y;
  const int lane = m * WEIGHT_ROWS + threadIdx.x, threads = blockDim.y * WEIGHT_ROWS;
  const long long first = (long long)blockIdx.x * WEIGHT_ROWS;
  x += (long long)m * cols;
  // step 1: one accumulator, ascending
  float acc = 0.0f;
  for (int from = 0; from < cols; from += COLS) {
    const int count = min(COLS, cols - from);
    for (int i = lane; i < WEIGHT_ROWS * COLS; i += threads)
      if (first + i / COLS < rows && i % COLS < count)
        tile[i] = w[(first + i / COLS) * cols + from + i % COLS];
    __syncthreads();
    if (r < rows)
      for (int j = 0; j < count; ++j)
        acc = product_sum(tile[threadIdx.x * COLS + j], x[from + j], acc, variants);
    __syncthreads();
  }
  if (r < rows) out[(long long)m * rows + r] = acc;
}
