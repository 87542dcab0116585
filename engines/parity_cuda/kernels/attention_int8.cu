// attention_int8: online softmax over an int8 KV cache, keys ascending. Contract 1.8.
// Launch: grid (n_q, M), block of TILE threads, dynamic shared memory: hd floats. One block per
// (head, row) walks the keys in tiles: scores in parallel, the chain of maxima and sums by one
// thread, the accumulators one thread each. Row m sees keys 0 .. pos + m, whatever the grid.
#include "elementary.cuh"

#define TILE 32

// Exact dot of two int8 rows.
__device__ __forceinline__ int dot_int8(const signed char* a, const signed char* b, int hd) {
  int dot = 0;
  for (int j = 0; j < hd; ++j) dot += (int)a[j] * (int)b[j];
  return dot;
}

extern "C" __global__ void attention_int8(float* out, const signed char* q, const float* q_scale,
                                          const signed char* k, const float* k_scale,
                                          const signed char* v, const float* v_scale,
                                          float sm_scale, int pos, int n_kv, int hd) {
  extern __shared__ float acc[];
  __shared__ float score[TILE];
  __shared__ float correction[TILE];
  __shared__ float weight[TILE];
  __shared__ float last[2];  // running maximum, running sum
  const int heads = gridDim.x;
  const int h = blockIdx.x, m = blockIdx.y;
  const int g = h / (heads / n_kv);
  const int keys = pos + m + 1;
  const int lane = threadIdx.x;
  const signed char* qh = q + ((long long)m * heads + h) * hd;
  const float qs = q_scale[m * heads + h];
  for (int j = lane; j < hd; j += TILE) acc[j] = 0.0f;
  if (lane == 0) last[1] = 0.0f;
  for (int from = 0; from < keys; from += TILE) {
    const int count = min(TILE, keys - from);
    if (lane < count) {
      const long long row = (long long)(from + lane) * n_kv + g;
      // step 1: score
      const int dot = dot_int8(qh, k + row * hd, hd);
      score[lane] = __fmul_rn(__fmul_rn((float)dot, __fmul_rn(qs, k_scale[row])), sm_scale);
    }
    __syncthreads();
    if (lane == 0) {
      float best = last[0], total = last[1];
      for (int t = 0; t < count; ++t) {
        const float s = score[t];
        float top = s, c = 0.0f, p = 1.0f;
        // step 2: running maximum, correction, weight; the first key by definition
        if (from + t > 0) {
          top = s > best ? s : best;
          c = ucrt_expf(__fsub_rn(best, top));
          p = ucrt_expf(__fsub_rn(s, top));
        }
        best = top;
        // step 3: l = l * c + p
        total = __fadd_rn(__fmul_rn(total, c), p);
        correction[t] = c;
        weight[t] = p;
      }
      last[0] = best;
      last[1] = total;
    }
    __syncthreads();
    for (int j = lane; j < hd; j += TILE) {
      float a = acc[j];
      for (int t = 0; t < count; ++t) {
        const long long row = (long long)(from + t) * n_kv + g;
        // step 4: acc = acc * c + (p * vs) * v
        const float w = __fmul_rn(weight[t], v_scale[row]);
        a = __fadd_rn(__fmul_rn(a, correction[t]), __fmul_rn(w, (float)v[row * hd + j]));
      }
      acc[j] = a;
    }
    __syncthreads();
  }
  // step 5: acc / l
  float* to = out + ((long long)m * heads + h) * hd;
  for (int j = lane; j < hd; j += TILE) to[j] = __fdiv_rn(acc[j], last[1]);
}
