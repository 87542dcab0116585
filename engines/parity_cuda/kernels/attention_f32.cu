// attention_f32: softmax over an f32 KV cache, keys ascending. Contract 1.8 (f32 form).
// Two launches, see attention_scores.cuh and attention.cuh: attention_f32_scores with grid (any, n_kv,
// rows by 8), block (32, 8) and dynamic shared memory for 32 keys of hd + 7 floats, 8 * n_q / n_kv
// queries and a float for each; attention_f32 with grid (blocks of dimensions, n_q, blocks of rows)
// and the memory of three tiles and of the makers. Row m sees keys 0 .. pos[0] + m, whatever the grid.
#include "attention_parts.cuh"

struct FloatScoreKeys {
  const float *q, *k;
  float sm_scale;
  int n_kv, hd;

  __device__ bool by_words() const { return hd % 4 == 0; }
  __device__ long long at(int t, int g) const { return (long long)t * n_kv + g; }
  __device__ int stride() const { return 4 * ((hd + 3) / 4 * 4 + 4); }
  __device__ int row_bytes() const { return 4 * hd; }
  __device__ const char* query(long long row) const { return (const char*)(q + row * hd); }
  __device__ const char* key(int t, int g) const { return (const char*)(k + at(t, g) * hd); }
  __device__ float query_scale(long long) const { return 1.0f; }
  __device__ float key_scale(int, int) const { return 1.0f; }

  __device__ float score(const char* query, const char* key, float, float) const {
    const float *a = (const float*)query, *b = (const float*)key;
    // step 1: score, the dot ascending
    float dot = 0.0f;
    if (by_words()) {
      dot = chain_dot<0>(b, a, hd, 0.0f);
    } else {
      for (int j = 0; j < hd; ++j) dot = __fadd_rn(dot, __fmul_rn(a[j], b[j]));
    }
    return __fmul_rn(dot, sm_scale);
  }
};

struct FloatKeys {
  typedef float4 Raw;
  static constexpr int PARTS = 2;  // of most blocks
  const float *q, *k, *v;
  float sm_scale;
  int n_kv, hd;

  __device__ static constexpr bool scaled() { return false; }
  __device__ bool by_words() const { return hd % 4 == 0; }
  __device__ long long at(int t, int g) const { return (long long)t * n_kv + g; }

  // ---- values
  __device__ const float* scale(int t, int g) const { return nullptr; }
  __device__ int step() const { return n_kv * hd; }  // from a key's value to the next one's
  __device__ const float* value(int g, int d) const { return v + g * hd + d; }  // of key 0

  __device__ Raw some(int t, int g, int d) const {
    const float* from = v + at(t, g) * hd + d;
    float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (d < hd) four.x = from[0];
    if (d + 1 < hd) four.y = from[1];
    if (d + 2 < hd) four.z = from[2];
    if (d + 3 < hd) four.w = from[3];
    return four;
  }

  __device__ float4 widen(Raw raw) const {
    // step 4: acc = acc * c + p * v
    return raw;
  }
};

extern "C" __global__ void __launch_bounds__(256) attention_f32_scores(float* scratch, const float* q,
    const float* k, float sm_scale, const int* pos, int count, int wide, int heads, int hd) {
  extern __shared__ float shared[];
  const FloatScoreKeys keys = {q, k, sm_scale, (int)gridDim.y, hd};
  attend_scores(scratch, keys, pos, count, wide, heads, (char*)shared);
}

extern "C" __global__ void __launch_bounds__(672) attention_f32(float* out, const float* q,
    const float* k, const float* v, float sm_scale, const int* pos, int variants, float* scratch, int count,
    int wide, int n_kv, int hd) {
  variants = KNOWN(variants);
  extern __shared__ float tiles[];
  const FloatKeys keys = {q, k, v, sm_scale, n_kv, hd};
  attend(out, keys, scratch, pos[0], count, wide, hd, variants, tiles);
}

// A lane's dimension of 32 keys.
struct FloatChunk {
  float asked[32], now[32];

  // Past the first cache, as int8's.
  __device__ __forceinline__ void ask(const FloatKeys& keys, const PartJob& job, int begin) {
    const int d = job.first + threadIdx.x % 32;
    const float* from = keys.value(job.g, d) + (long long)begin * keys.step();
#pragma unroll
    for (int i = 0; i < 32; ++i, from += keys.step())
      asked[i] = begin + i < job.keys && d < keys.hd ? __ldcg(from) : 0.0f;
  }

  __device__ __forceinline__ void settle(unsigned*) {
#pragma unroll
    for (int i = 0; i < 32; ++i) now[i] = asked[i];
  }

  __device__ __forceinline__ float4 four(const FloatKeys&, int i) const {
    return make_float4(now[i * 4], now[i * 4 + 1], now[i * 4 + 2], now[i * 4 + 3]);
  }
};

extern "C" __global__ void __launch_bounds__(512) attention_f32_split_keys(float* out, const float* v,
    const int* pos, int variants, const float* scratch, int wide, int n_kv, int hd) {
  variants = KNOWN(variants);
  __shared__ PartMemory memory;
  const FloatKeys keys = {nullptr, nullptr, v, 0.0f, n_kv, hd};
  attend_parts<FloatChunk>(out, keys, scratch, pos[0], wide, variants, memory);
}
