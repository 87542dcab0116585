// attention_int8: softmax over an int8 KV cache, keys ascending. Contract 1.8.
// Launch: grid (n_q, M), block of TILE threads, dynamic shared memory: hd floats; see
// attention.cuh. Row m sees keys 0 .. pos + m, whatever the grid. scratch (two_pass alone):
// 2 * power_of_two(pos + M) floats for each (row, head).
#include "attention.cuh"

// Exact dot of two int8 rows.
__device__ __forceinline__ int dot_int8(const signed char* a, const signed char* b, int hd) {
  int dot = 0;
  for (int j = 0; j < hd; ++j) dot += (int)a[j] * (int)b[j];
  return dot;
}

struct Int8Keys {
  const signed char *q, *k, *v;
  const float *k_scale, *v_scale;
  float q_scale, sm_scale;
  int n_kv, g, hd;

  __device__ float score(int t) const {
    const long long row = (long long)t * n_kv + g;
    // step 1: score
    const int dot = dot_int8(q, k + row * hd, hd);
    return __fmul_rn(__fmul_rn((float)dot, __fmul_rn(q_scale, k_scale[row])), sm_scale);
  }

  __device__ float value(int t, int j, float p) const {
    const long long row = (long long)t * n_kv + g;
    // step 4: acc = acc * c + (p * vs) * v
    return __fmul_rn(__fmul_rn(p, v_scale[row]), (float)v[row * hd + j]);
  }
};

extern "C" __global__ void attention_int8(float* out, const signed char* q, const float* q_scale,
                                          const signed char* k, const float* k_scale,
                                          const signed char* v, const float* v_scale,
                                          float sm_scale, int pos, int variants, float* scratch,
                                          int n_kv, int hd) {
  extern __shared__ float acc[];
  __shared__ Chain chain[1];
  const int heads = gridDim.x, h = blockIdx.x, m = blockIdx.y;
  const long long row = (long long)m * heads + h;
  const Int8Keys head = {q + row * hd, k,        v,    k_scale,          v_scale,
                         q_scale[row], sm_scale, n_kv, h / (heads / n_kv), hd};
  const long long wide = 2ll * power_of_two(pos + gridDim.y);
  attend(out + row * hd, head, acc, chain[0], scratch + row * wide, pos + m + 1, hd, variants);
}
