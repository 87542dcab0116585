// expert_matvec: rows of the chosen Q4_0 experts times int16 rows. Contract 1.4.
// Launch: grid (tiles of weight rows, k, M), 128 threads, dynamic shared memory by ops.py: the
// input, then a sum for each block of 32 of the tile. groups = 1: one input for all ranks; groups =
// k: each its own. A thread makes the terms of whole blocks; a chain belongs to one thread, so
// neither the grid nor M can change the order.
#include "async_copy.cuh"
#include "chain.cuh"
#include "q4.cuh"

#define EXPERT_THREADS 128
#define INPUT_WORDS 20  // of a block of 32 int16 and its padding: warps meet no bank twice
#define AHEAD 4         // blocks that a thread loads before it works on the first

// Copies the input's blocks, `nb` of 64 bytes, and their scales.
__device__ __forceinline__ void stage_input(int* to, float* scales, const short* q,
                                            const float* s_a, int nb) {
  for (int i = threadIdx.x; i < nb * 4; i += EXPERT_THREADS)
    copy_16((float*)(to + i / 4 * INPUT_WORDS + i % 4 * 4), (const float*)q + i * 4);
  for (int i = threadIdx.x; i < nb; i += EXPERT_THREADS) copy_4(scales + i, s_a + i);
  copy_commit();
}

// The dot of a block with its input.
__device__ __forceinline__ int block_dot(uint4 qs, const int* input) {
  int q[16], sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int4 four = *(const int4*)(input + 4 * i);
    q[4 * i] = four.x, q[4 * i + 1] = four.y, q[4 * i + 2] = four.z, q[4 * i + 3] = four.w;
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) sum = __dp2a_lo(q[i], 0x0101, sum);
  return q4_block_int(qs, q, sum);
}

// Every EXPERT_THREADS-th block from `begin` on; what is past the end is not there.
__device__ __forceinline__ void load_blocks(uint4 (&word)[AHEAD], unsigned short (&scale)[AHEAD],
                                            const unsigned char* qs, const unsigned short* d,
                                            int begin, int units) {
#pragma unroll
  for (int i = 0; i < AHEAD; ++i) {
    const int unit = begin + i * EXPERT_THREADS;
    if (unit >= units) break;
    word[i] = load_once(qs + (long long)unit * 16);
    scale[i] = __ldg(d + unit);
  }
}

extern "C" __global__ void __launch_bounds__(128) expert_matvec(float* out, const unsigned short* d,
    const unsigned char* qs, const int* ids, const float* probs, const short* q, const float* s_a,
    int variants, int rows, int nb, int groups) {
  extern __shared__ float shared[];
  const int rank = blockIdx.y, m = blockIdx.z, ranks = gridDim.y;
  const int most = (rows + gridDim.x - 1) / gridDim.x, first = blockIdx.x * most;
  if (first >= rows) return;
  const int tile = min(most, rows - first), stride = (nb + 31) / 32 * 32 + 4;
  int* input = (int*)shared;
  float *terms = shared + nb * INPUT_WORDS, *scales = terms + tile * stride;
  const int g = groups > 1 ? rank : 0;
  const long long from = ((long long)m * groups + g) * nb;
  stage_input(input, scales, q + from * 32, s_a + from, nb);
  const long long expert = (long long)ids[m * ranks + rank] * rows + first;
  const int units = tile * nb;
  qs += expert * nb * 16;
  d += expert * nb;
  const bool folds = variants & FOLD_P;
  const float p = folds ? probs[m * ranks + rank] : 1.0f;
  uint4 next[AHEAD];
  unsigned short next_scale[AHEAD];
  load_blocks(next, next_scale, qs, d, threadIdx.x, units);
  copy_wait<0>();
  __syncthreads();
  for (int begin = threadIdx.x; begin < units; begin += AHEAD * EXPERT_THREADS) {
    uint4 word[AHEAD];
    unsigned short scale[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) word[i] = next[i], scale[i] = next_scale[i];
    load_blocks(next, next_scale, qs, d, begin + AHEAD * EXPERT_THREADS, units);
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const int unit = begin + i * EXPERT_THREADS, row = unit / nb, b = unit - row * nb;
      if (unit >= units) break;
      const int dot = block_dot(word[i], input + b * INPUT_WORDS);
      // step 2: (dot * s_w) * s_a, blocks ascending
      float term = scaled_dot(dot, half_to_f32(scale[i]), scales[b], variants);
      if (folds) term = __fmul_rn(term, p);
      terms[row * stride + b] = term;
    }
  }
  __syncthreads();
  if (threadIdx.x < tile)
    out[((long long)m * ranks + rank) * rows + first + threadIdx.x] =
        chain_sum(terms + threadIdx.x * stride, nb, 0.0f);
}
