// attention_f32: softmax over an f32 KV cache, keys ascending. Contract 1.8 (f32 form).
// Launch: grid (n_q, M), block of TILE threads, dynamic shared memory: hd floats; see
// attention.cuh. Row m sees keys 0 .. pos + m, whatever the grid. scratch (two_pass alone):
// 2 * power_of_two(pos + M) floats for each (row, head).
#include "attention.cuh"

struct FloatKeys {
  const float *q, *k, *v;
  float sm_scale;
  int n_kv, g, hd;

  __device__ float score(int t) const {
    const float* row = k + ((long long)t * n_kv + g) * hd;
    // step 1: score, the dot ascending
    float dot = 0.0f;
    for (int j = 0; j < hd; ++j) dot = __fadd_rn(dot, __fmul_rn(q[j], row[j]));
    return __fmul_rn(dot, sm_scale);
  }

  __device__ float value(int t, int j, float p) const {
    // step 4: acc = acc * c + p * v
    return __fmul_rn(p, v[((long long)t * n_kv + g) * hd + j]);
  }
};

extern "C" __global__ void attention_f32(float* out, const float* q, const float* k,
                                         const float* v, float sm_scale, int pos, int variants,
                                         float* scratch, int n_kv, int hd) {
  extern __shared__ float acc[];
  __shared__ Chain chain[1];
  const int heads = gridDim.x, h = blockIdx.x, m = blockIdx.y;
  const long long row = (long long)m * heads + h;
  const FloatKeys head = {q + row * hd, k, v, sm_scale, n_kv, h / (heads / n_kv), hd};
  const long long wide = 2ll * power_of_two(pos + gridDim.y);
  attend(out + row * hd, head, acc, chain[0], scratch + row * wide, pos + m + 1, hd, variants);
}
