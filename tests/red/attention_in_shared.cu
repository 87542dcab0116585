// attention_in_shared: attention_int8 with the scores of all keys in dynamic shared memory, before
// the accumulators. Right where memory is sized for the last row's keys. Planted: ``by_first`` lays
// it out for the keys of row 0. Launch: grid (n_q, M), one thread.
#include "variants.cuh"

extern "C" __global__ void attention_in_shared(float* out, const signed char* q,
                                               const float* q_scale, const signed char* k,
                                               const float* k_scale, const signed char* v,
                                               const float* v_scale, float sm_scale,
                                               const int* pos, int by_first, int n_kv, int hd) {
  extern __shared__ float score[];
  const int heads = gridDim.x, h = blockIdx.x, m = blockIdx.y;
  const int g = h / (heads / n_kv), keys = pos[0] + m + 1;
  const long long row = (long long)m * heads + h;
  float* acc = score + (by_first ? pos[0] + 1 : keys);
  for (int t = 0; t < keys; ++t) {
    const long long at = (long long)t * n_kv + g;
    int dot = 0;
    for (int j = 0; j < hd; ++j) dot += (int)q[row * hd + j] * (int)k[at * hd + j];
    score[t] = __fmul_rn(__fmul_rn((float)dot, __fmul_rn(q_scale[row], k_scale[at])), sm_scale);
  }
  for (int j = 0; j < hd; ++j) acc[j] = 0.0f;
  float best = 0.0f, total = 0.0f;
  for (int t = 0; t < keys; ++t) {
    const long long at = (long long)t * n_kv + g;
    const float s = score[t];
    const float top = t == 0 || s > best ? s : best;
    const float c = t == 0 ? 0.0f : any_expf(__fsub_rn(best, top), 0);
    const float p = t == 0 ? 1.0f : any_expf(__fsub_rn(s, top), 0);
    best = top;
    total = __fadd_rn(__fmul_rn(total, c), p);
    for (int j = 0; j < hd; ++j) {
      const float value = __fmul_rn(__fmul_rn(p, v_scale[at]), (float)v[at * hd + j]);
      acc[j] = __fadd_rn(__fmul_rn(acc[j], c), value);
    }
  }
  for (int j = 0; j < hd; ++j) out[row * hd + j] = __fdiv_rn(acc[j], total);
}
