// attention_int8: softmax over an int8 KV cache, keys ascending. Contract 1.8.
// Two launches, see attention.cuh: attention_int8_scores with grid (any, n_kv), block (32, 8), dynamic shared
// memory 32 * (hd + 16) bytes; attention_int8 with grid (blocks of 32 dimensions, n_q, M) and 320
// threads. Row m sees keys 0 .. pos[0] + m, whatever the grid. scratch: wide floats for each (row,
// head), wide not below pos[0] + M.
#include "attention.cuh"

struct Int8Keys {
  typedef unsigned Raw;  // four values
  const signed char *q, *k, *v;
  const float *q_scale, *k_scale, *v_scale;
  float sm_scale;
  int n_kv, hd;

  __device__ static constexpr bool scaled() { return true; }
  __device__ bool by_words() const { return hd % 16 == 0; }
  __device__ long long at(int t, int g) const { return (long long)t * n_kv + g; }

  __device__ void stage(float* shared, int from, int count, int g) const {
    const int thread = threadIdx.y * 32 + threadIdx.x, stride = hd + 16;
    signed char* to = (signed char*)shared;
    const int step = by_words() ? 16 : 1, each = hd / step;
    for (int i = thread; i < count * each; i += 32 * SCORE_WARPS) {
      const int key = i / each, j = (i - key * each) * step;
      const signed char* source = k + at(from + key, g) * hd + j;
      if (step == 16) {
        copy_16((float*)(to + key * stride + j), (const float*)source);
      } else {
        to[key * stride + j] = *source;
      }
    }
  }

  // Exact dot of the query `row` and a staged key.
  __device__ int dot(const float* shared, int key, int row) const {
    const signed char *a = q + (long long)row * hd, *b = (const signed char*)shared + key * (hd + 16);
    int sum = 0;
    if (by_words()) {
      for (int j = 0; j < hd; j += 16) {
        const int4 x = *(const int4*)(a + j), y = *(const int4*)(b + j);
        sum = __dp4a(x.x, y.x, sum);
        sum = __dp4a(x.y, y.y, sum);
        sum = __dp4a(x.z, y.z, sum);
        sum = __dp4a(x.w, y.w, sum);
      }
    } else {
      for (int j = 0; j < hd; ++j) sum += (int)a[j] * (int)b[j];
    }
    return sum;
  }

  __device__ float score(const float* shared, int key, int t, int g, int row) const {
    const float scale = __fmul_rn(q_scale[row], k_scale[at(t, g)]);
    // step 1: score
    return __fmul_rn(__fmul_rn((float)dot(shared, key, row), scale), sm_scale);
  }

  __device__ float scale(int t, int count, int g) const {
    return v_scale[at(min(t, count - 1), g)];
  }

  __device__ Raw whole(int t, int g, int d) const { return *(const Raw*)(v + at(t, g) * hd + d); }

  __device__ Raw some(int t, int g, int d) const {
    const signed char* from = v + at(t, g) * hd + d;
    Raw word = 0;
    for (int e = 0; e < 4 && d + e < hd; ++e) word |= (unsigned)(unsigned char)from[e] << 8 * e;
    return word;
  }

  __device__ Raw there(Raw raw, bool is) const { return is ? raw : 0; }

  __device__ float4 widen(Raw raw) const {
    // step 4: acc = acc * c + (p * vs) * v
    return make_float4((float)(signed char)raw, (float)(signed char)(raw >> 8),
                       (float)(signed char)(raw >> 16), (float)(signed char)(raw >> 24));
  }
};

extern "C" __global__ void __launch_bounds__(256) attention_int8_scores(float* scratch, const signed char* q,
    const float* q_scale, const signed char* k, const float* k_scale, float sm_scale, const int* pos,
    int count, int wide, int heads, int hd) {
  extern __shared__ float shared[];
  const int n_kv = gridDim.y;
  const Int8Keys keys = {q, k, nullptr, q_scale, k_scale, nullptr, sm_scale, n_kv, hd};
  attend_scores(scratch, keys, pos[0], count, wide, heads, shared);
}

extern "C" __global__ void __launch_bounds__(320) attention_int8(float* out, const signed char* q,
    const float* q_scale, const signed char* k, const float* k_scale, const signed char* v,
    const float* v_scale, float sm_scale, const int* pos, int variants, float* scratch, int wide, int n_kv,
    int hd) {
  __shared__ AttentionMemory memory[1];
  const int heads = gridDim.y, h = blockIdx.y, m = blockIdx.z;
  const long long row = (long long)m * heads + h;
  const Int8Keys keys = {q, k, v, q_scale, k_scale, v_scale, sm_scale, n_kv, hd};
  attend(out + row * hd, keys, scratch + row * wide, pos[0] + m + 1, h / (heads / n_kv),
         blockIdx.x * DIMS, hd, variants, memory[0]);
}
