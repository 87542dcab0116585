// attention_int8: softmax over an int8 KV cache, keys ascending. Contract 1.8.
// Two launches, see attention_scores.cuh and attention.cuh: attention_int8_scores with grid (any, n_kv,
// rows by 8), block (32, 8) and dynamic shared memory for 32 keys of hd + 16 bytes, 8 * n_q / n_kv
// queries and their scales; attention_int8 with grid (blocks of dimensions, n_q, blocks of rows) and
// the memory of three tiles and of the makers. Row m sees keys 0 .. pos[0] + m, whatever the grid.
#include "attention_parts.cuh"

struct Int8ScoreKeys {
  const signed char *q, *k;
  const float *q_scale, *k_scale;
  float sm_scale;
  int n_kv, hd;

  __device__ bool by_words() const { return hd % 16 == 0; }
  __device__ long long at(int t, int g) const { return (long long)t * n_kv + g; }
  __device__ int stride() const { return hd + 16; }
  __device__ int row_bytes() const { return hd; }
  __device__ const char* query(long long row) const { return (const char*)(q + row * hd); }
  __device__ const char* key(int t, int g) const { return (const char*)(k + at(t, g) * hd); }
  __device__ float query_scale(long long row) const { return q_scale[row]; }
  __device__ float key_scale(int t, int g) const { return k_scale[at(t, g)]; }

  __device__ int dot(const char* a, const char* b) const {
    int sum = 0;
    if (by_words()) {
#pragma unroll 4
      for (int j = 0; j < hd; j += 16) {
        const int4 x = *(const int4*)(a + j), y = *(const int4*)(b + j);
        sum = __dp4a(x.x, y.x, sum);
        sum = __dp4a(x.y, y.y, sum);
        sum = __dp4a(x.z, y.z, sum);
        sum = __dp4a(x.w, y.w, sum);
      }
    } else {
      for (int j = 0; j < hd; ++j) sum += (int)(signed char)a[j] * (int)(signed char)b[j];
    }
    return sum;
  }

  __device__ float score(const char* query, const char* key, float query_scale,
                         float key_scale) const {
    // step 1: score
    const float scale = __fmul_rn(query_scale, key_scale);
    return __fmul_rn(__fmul_rn((float)dot(query, key), scale), sm_scale);
  }
};

struct Int8Keys {
  typedef unsigned Raw;  // four values
  static constexpr int PARTS = 1;  // of most blocks
  const signed char *q, *k, *v;
  const float *q_scale, *k_scale, *v_scale;
  float sm_scale;
  int n_kv, hd;

  __device__ static constexpr bool scaled() { return true; }
  __device__ bool by_words() const { return hd % 16 == 0; }
  __device__ long long at(int t, int g) const { return (long long)t * n_kv + g; }

  // ---- values
  __device__ const float* scale(int t, int g) const { return v_scale + (t * n_kv + g); }
  __device__ int step() const { return n_kv * hd; }  // from a key's value to the next one's
  __device__ const signed char* value(int g, int d) const { return v + g * hd + d; }  // of key 0

  __device__ Raw some(int t, int g, int d) const {
    const signed char* from = v + at(t, g) * hd + d;
    Raw word = 0;
    for (int e = 0; e < 4 && d + e < hd; ++e) word |= (unsigned)(unsigned char)from[e] << 8 * e;
    return word;
  }

  // A byte b + 128 as the last of a float of 2^23: exact, and faster than a conversion.
  __device__ float4 widen(Raw raw) const {
    // step 4: acc = acc * c + (p * vs) * v
    const unsigned word = raw ^ 0x80808080u, big = 0x4b000000u;
    return make_float4(__fsub_rn(__uint_as_float(__byte_perm(word, big, 0x7440)), 8388736.0f),
                       __fsub_rn(__uint_as_float(__byte_perm(word, big, 0x7441)), 8388736.0f),
                       __fsub_rn(__uint_as_float(__byte_perm(word, big, 0x7442)), 8388736.0f),
                       __fsub_rn(__uint_as_float(__byte_perm(word, big, 0x7443)), 8388736.0f));
  }
};

extern "C" __global__ void __launch_bounds__(256) attention_int8_scores(float* scratch, const signed char* q,
    const float* q_scale, const signed char* k, const float* k_scale, float sm_scale, const int* pos,
    int count, int wide, int heads, int hd) {
  extern __shared__ float shared[];
  const Int8ScoreKeys keys = {q, k, q_scale, k_scale, sm_scale, (int)gridDim.y, hd};
  attend_scores(scratch, keys, pos, count, wide, heads, (char*)shared);
}

extern "C" __global__ void __launch_bounds__(672) attention_int8(float* out, const signed char* q,
    const float* q_scale, const signed char* k, const float* k_scale, const signed char* v,
    const float* v_scale, float sm_scale, const int* pos, int variants, float* scratch, int count, int wide,
    int n_kv, int hd) {
  variants = KNOWN(variants);
  extern __shared__ float tiles[];
  const Int8Keys keys = {q, k, v, q_scale, k_scale, v_scale, sm_scale, n_kv, hd};
  attend(out, keys, scratch, pos[0], count, wide, hd, variants, tiles);
}

// Eight values of a key, of which `left` are there: rare, so that its text stands apart.
__device__ __noinline__ uint2 odd_eight(const signed char* from, int left) {
  unsigned long long some = 0;
#pragma unroll 1
  for (int e = min(8, left) - 1; e >= 0; --e) some = some << 8 | (unsigned char)from[e];
  return make_uint2((unsigned)some, (unsigned)(some >> 32));
}

// A lane's dimension of 32 keys, four a word, from patches of four keys and eight dimensions a lane.
struct Int8Chunk {
  uint2 raw[4];
  unsigned word[8];

  // By words past the first cache, which may hold a piece of the newest key's from before.
  __device__ __forceinline__ void ask(const Int8Keys& keys, const PartJob& job, int begin) {
    const int t = begin + threadIdx.x % 32 / 4 * 4, d = job.first + threadIdx.x % 4 * 8;
    const int last = d < keys.hd ? job.keys : 0;
    const signed char* from = keys.value(job.g, d) + (long long)t * keys.step();
#pragma unroll
    for (int e = 0; e < 4; ++e, from += keys.step()) {
      raw[e] = {};
      if (t + e >= last) continue;
      raw[e] = keys.by_words() ? __ldcg((const uint2*)from) : odd_eight(from, keys.hd - d);
    }
  }

  // Bytes of four keys and four dimensions change places.
  __device__ static __forceinline__ uint4 turned(unsigned a, unsigned b, unsigned c, unsigned d) {
    const unsigned low = __byte_perm(a, b, 0x5140), low_too = __byte_perm(c, d, 0x5140);
    const unsigned high = __byte_perm(a, b, 0x7362), high_too = __byte_perm(c, d, 0x7362);
    return make_uint4(__byte_perm(low, low_too, 0x5410), __byte_perm(low, low_too, 0x7632),
                      __byte_perm(high, high_too, 0x5410), __byte_perm(high, high_too, 0x7632));
  }

  // What was asked for goes where four() finds it.
  __device__ __forceinline__ void settle(unsigned* room) {
    const int lane = threadIdx.x % 32;
    __syncwarp();  // all lanes have read what was there
    uint4* to = (uint4*)(room + lane * 8);
    to[0] = turned(raw[0].x, raw[1].x, raw[2].x, raw[3].x);
    to[1] = turned(raw[0].y, raw[1].y, raw[2].y, raw[3].y);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; ++i) word[i] = room[i * 32 + lane];
  }

  __device__ __forceinline__ float4 four(const Int8Keys& keys, int i) const { return keys.widen(word[i]); }
};

extern "C" __global__ void __launch_bounds__(512) attention_int8_split_keys(float* out,
    const signed char* v, const float* v_scale, const int* pos, int variants, const float* scratch,
    int wide, int n_kv, int hd) {
  variants = KNOWN(variants);
  __shared__ PartMemory memory;
  const Int8Keys keys = {nullptr, nullptr, v, nullptr, nullptr, v_scale, 0.0f, n_kv, hd};
  attend_parts<Int8Chunk>(out, keys, scratch, pos[0], wide, variants, memory);
}
