// Three kernels whose order of operations does not hang on the schedule.
#include "good.cuh"

// A block a row. Threads square blocks of 8, thread 0 adds them up in ascending order.
extern "C" __global__ void __launch_bounds__(64)
    rmsnorm(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ out,
            int d, float eps) {
  __shared__ float sums[64], scale;
  const int t = threadIdx.x;
  const float* row = x + (size_t)blockIdx.x * d;
  float ss = 0.0f;
  for (int base = 0; base < d / 8; base += 64) {
    if (base + t < d / 8) {
      const float* b = row + 8 * (base + t);
      float part[4];
      for (int k = 0; k < 4; ++k) part[k] = b[k] * b[k] + b[4 + k] * b[4 + k];
      sums[t] = (part[0] + part[1]) + (part[2] + part[3]);
    }
    __syncthreads();
    if (t == 0) {
      for (int k = 0; k < 64 && base + k < d / 8; ++k) ss = ss + sums[k];
    }
    __syncthreads();
  }
  if (t == 0) scale = 1.0f / sqrtf(ss / (float)d + eps);
  __syncthreads();
  for (int j = t; j < d; j += 64) out[(size_t)blockIdx.x * d + j] = (row[j] * scale) * w[j];
}

// A block a query row and head, a thread a dimension; keys ascending, one at a time.
extern "C" __global__ void attention(const float* q, const float* k, const float* v, float* out,
                                     int rows, float sm_scale) {
  extern __shared__ float scores[];
  __shared__ float query[64];
  const int t = threadIdx.x, d = blockDim.x, row = blockIdx.x;
  const size_t base = (size_t)blockIdx.y * rows * d;
  query[t] = q[base + row * d + t];
  __syncthreads();
  for (int key = t; key <= row; key += d) {
    float s = 0.0f;
    for (int e = 0; e < d; ++e) s = s + query[e] * k[base + key * d + e];
    scores[key] = s * sm_scale;
  }
  __syncthreads();
  float top = __int_as_float(0xff800000);
  for (int key = t; key <= row; key += d) top = fmaxf(top, scores[key]);
  const float m = block_max(top);
  float l = 0.0f, acc = 0.0f;
  for (int key = 0; key <= row; ++key) {
    const float p = own_exp(scores[key] - m);
    l = l + p;
    acc = acc + p * v[base + key * d + t];
  }
  out[base + row * d + t] = acc / l;
}

// A warp a row: butterfly, scan, rotation inside 8 lanes, neighbour, votes.
extern "C" __global__ void warp_ops(const float* x, float* out, unsigned* votes) {
  const int lane = threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y;
  const float own = x[row * 32 + lane];
  float sum = own;
  for (int with = 16; with > 0; with >>= 1) sum = sum + __shfl_xor_sync(0xffffffffu, sum, with);
  float scan = own;
  for (int by = 1; by < 32; by <<= 1) {
    const float left = __shfl_up_sync(0xffffffffu, scan, by);
    if (lane >= by) scan = left + scan;
  }
  const float turned = __shfl_sync(0xffffffffu, own, lane + 3, 8);
  const double next = __shfl_down_sync(0xffffffffu, (double)own, 1, 16);
  float* to = out + (row * 32 + lane) * 4;
  to[0] = sum;
  to[1] = scan;
  to[2] = turned;
  to[3] = (float)next;
  const unsigned positive = __ballot_sync(0xffffffffu, own > 0.0f);
  const int all = __all_sync(0xffffffffu, own > -9.0f), any = __any_sync(0xffffffffu, own > 3.0f);
  if (lane == 0) {
    votes[row * 2] = positive;
    votes[row * 2 + 1] = 2 * all + any;
  }
}

// Predicates over a block: how many, any, all.
extern "C" __global__ void block_votes(const int* x, int* out) {
  const int mine = x[blockIdx.x * blockDim.x + threadIdx.x];
  const int count = __syncthreads_count(mine > 0);
  const int any = __syncthreads_or(mine > 1), all = __syncthreads_and(mine >= 0);
  if (threadIdx.x == 0) out[blockIdx.x] = 4 * count + 2 * any + all;
}

// Integer atomics wrap and add up to the same in any order; the last block sees all others.
extern "C" __global__ void count_bits(const unsigned* x, unsigned long long* sum, unsigned* done,
                                      unsigned* last) {
  atomicAdd(sum, (unsigned long long)__popc(x[blockIdx.x * blockDim.x + threadIdx.x]) << 40);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && atomicAdd(done, 1u) == gridDim.x - 1) *last = (unsigned)(*sum >> 40);
}
