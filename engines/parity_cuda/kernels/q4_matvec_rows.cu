// q4_matvec_rows: q4_matvec for M rows, each weight read once for all of them. Contract 1.3.
// Launch: grid (blocks of ROWS weight rows), block (ROWS, M): M is the shape of the block, never an
// argument. A block of 32 weights of ROWS rows is staged in shared memory and used by all M rows; a
// chain belongs to one thread, so M cannot change the order.
#include "q4.cuh"

#define ROWS 32

// 1,024 threads at most: the compiler must leave room for 32 rows in one block.
extern "C" __global__ void __launch_bounds__(1024) q4_matvec_rows(float* out,
    const unsigned short* d, const unsigned char* qs, const float* x, int variants,
    int rows, int nb) {
  __shared__ unsigned char tile[ROWS * 16];
  __shared__ unsigned short scale[ROWS];
  const int r = blockIdx.x * ROWS + threadIdx.x;
  const int m = threadIdx.y;
  const int lane = m * ROWS + threadIdx.x, threads = blockDim.y * ROWS;
  const long long first = (long long)blockIdx.x * ROWS;
  x += (long long)m * nb * 32;
  float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int b = 0; b < nb; ++b) {
    for (int i = lane; i < ROWS * 16; i += threads)
      if (first + i / 16 < rows) tile[i] = qs[((first + i / 16) * nb + b) * 16 + i % 16];
    for (int i = lane; i < ROWS; i += threads)
      if (first + i < rows) scale[i] = d[(first + i) * nb + b];
    __syncthreads();
    if (r < rows) {
      const unsigned char* w = tile + threadIdx.x * 16;
      const bool exact = !(variants & (FMA | UNPAIRED));
      const float s = exact ? q4_block(w, x + b * 32) : q4_block_variant(w, x + b * 32, variants);
      // step 2: d * s, blocks ascending
      const int at = variants & SPLIT_K ? b % 4 : 0;
      part[at] = product_sum(half_to_f32(scale[threadIdx.x]), s, part[at], variants);
    }
    __syncthreads();
  }
  if (r >= rows) return;
  float acc = part[0];
  if (variants & SPLIT_K) {
    acc = 0.0f;
    for (int at = 0; at < 4; ++at) acc = __fadd_rn(acc, part[at]);
  }
  out[(long long)m * rows + r] = acc;
}
