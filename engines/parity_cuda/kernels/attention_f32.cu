// attention_f32: softmax over an f32 KV cache, keys ascending. Contract 1.8 (f32 form).
// Two launches, see attention.cuh: attention_f32_scores with grid (any, n_kv), block (32, 8), dynamic shared
// memory 32 * (hd + 4) floats; attention_f32 with grid (blocks of 32 dimensions, n_q, M) and 320
// threads. Row m sees keys 0 .. pos[0] + m, whatever the grid. scratch: wide floats for each (row,
// head), wide not below pos[0] + M.
#include "attention.cuh"

struct FloatKeys {
  typedef float4 Raw;
  const float *q, *k, *v;
  float sm_scale;
  int n_kv, hd;

  __device__ static constexpr bool scaled() { return false; }
  __device__ bool by_words() const { return hd % 4 == 0; }
  __device__ long long at(int t, int g) const { return (long long)t * n_kv + g; }
  __device__ int stride() const { return (hd + 3) / 4 * 4 + 4; }

  __device__ void stage(float* shared, int from, int count, int g) const {
    const int thread = threadIdx.y * 32 + threadIdx.x;
    const int step = hd % 4 == 0 ? 4 : 1, each = hd / step;
    for (int i = thread; i < count * each; i += 32 * SCORE_WARPS) {
      const int key = i / each, j = (i - key * each) * step;
      float* to = shared + key * stride() + j;
      if (step == 4) {
        copy_16(to, k + at(from + key, g) * hd + j);
      } else {
        copy_4(to, k + at(from + key, g) * hd + j);
      }
    }
  }

  __device__ float score(const float* shared, int key, int t, int g, int row) const {
    const float *a = q + (long long)row * hd, *b = shared + key * stride();
    // step 1: score, the dot ascending
    float dot = 0.0f;
    if (hd % 4 == 0) {
      dot = chain_dot<0>(b, a, hd, 0.0f);
    } else {
      for (int j = 0; j < hd; ++j) dot = __fadd_rn(dot, __fmul_rn(a[j], b[j]));
    }
    return __fmul_rn(dot, sm_scale);
  }

  __device__ float scale(int t, int count, int g) const { return 0.0f; }

  __device__ Raw whole(int t, int g, int d) const { return *(const Raw*)(v + at(t, g) * hd + d); }

  __device__ Raw some(int t, int g, int d) const {
    const float* from = v + at(t, g) * hd + d;
    float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (d < hd) four.x = from[0];
    if (d + 1 < hd) four.y = from[1];
    if (d + 2 < hd) four.z = from[2];
    if (d + 3 < hd) four.w = from[3];
    return four;
  }

  __device__ Raw there(Raw raw, bool is) const {
    return is ? raw : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }

  __device__ float4 widen(Raw raw) const {
    // step 4: acc = acc * c + p * v
    return raw;
  }
};

extern "C" __global__ void __launch_bounds__(256) attention_f32_scores(float* scratch, const float* q,
    const float* k, float sm_scale, const int* pos, int count, int wide, int heads, int hd) {
  extern __shared__ float shared[];
  const FloatKeys keys = {q, k, nullptr, sm_scale, (int)gridDim.y, hd};
  attend_scores(scratch, keys, pos[0], count, wide, heads, shared);
}

extern "C" __global__ void __launch_bounds__(320) attention_f32(float* out, const float* q,
    const float* k, const float* v, float sm_scale, const int* pos, int variants, float* scratch, int wide,
    int n_kv, int hd) {
  __shared__ AttentionMemory memory[1];
  const int heads = gridDim.y, h = blockIdx.y, m = blockIdx.z;
  const long long row = (long long)m * heads + h;
  const FloatKeys keys = {q, k, v, sm_scale, n_kv, hd};
  attend(out + row * hd, keys, scratch + row * wide, pos[0] + m + 1, h / (heads / n_kv),
         blockIdx.x * DIMS, hd, variants, memory[0]);
}
