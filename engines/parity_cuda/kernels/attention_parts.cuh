// attention_parts: keys in parts of PART, each summed by itself. Contract 5, split_keys.
// Two launches after attention_scores.cuh, which leaves every score and the largest of each 32: the
// sums of the parts, then theirs. A block of the first: one part at a time, one KV head, 32 dimensions, one row. Its values are widened
// once for all query heads of the group; a warp adds those of some heads, a lane a dimension, and the
// last warp l, a lane a head. Every sum is one thread's: no launch shape can change a bit.
// Past the last key p and v are +0.0, which changes no sum that began with +0.0.
#pragma once
#include "attention.cuh"

#define PART 128      // keys of a part
#define PART_WARPS 8  // a thread has four keys and four dimensions of the values
#define PART_HEADS 2  // of a warp: they share what it reads of the values

// Partial sums of a (row, head): hd of each part, then for each 32 dimensions l of each part.
struct PartSums {
  float* sums;
  int heads, parts, hd;  // parts: that there is room for

  __device__ int slices() const { return (hd + DIMS - 1) / DIMS; }
  __device__ float* of(int row, int h) const {
    return sums + ((long long)row * heads + h) * parts * (hd + slices());
  }
  __device__ float* acc(int row, int h, int part) const { return of(row, h) + (long long)part * hd; }
  __device__ float* l(int row, int h, int slice) const {
    return of(row, h) + (long long)parts * (hd + slice);
  }
};

// A block's shared memory: values [four keys][slot of the dimension][key of the four], of each head
// weights and factors, of each head the largest score.
struct PartMemory {
  float* values;
  int group;
  static constexpr int STRIDE = PART + 4;  // heads meet no bank twice

  __device__ float* weight(int h) const { return values + PART * DIMS + h * STRIDE; }
  __device__ float* factor(int h) const { return weight(group + h); }
  __device__ float* tops() const { return weight(2 * group); }
};

// What a thread has of a part: four keys and four dimensions.
template <class Keys>
struct Patch {
  typename Keys::Raw raw[4];

  // By words past the first cache, which may hold a piece of the newest key's from before.
  __device__ __forceinline__ void load(const Keys& keys, int part, int seen, int g, int first) {
    const int four = threadIdx.x / 8, d = first + threadIdx.x % 8 * 4;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int t = part * PART + four * 4 + e;
      raw[e] = {};
      if (t >= seen || d >= keys.hd) continue;
      if (keys.by_words()) {
        raw[e] = __ldcg((const typename Keys::Raw*)(keys.value(g, d) + (long long)t * keys.step()));
      } else {
        raw[e] = keys.some(t, g, d);
      }
    }
  }

  __device__ __forceinline__ void store(const Keys& keys, float* values) const {
    const int four = threadIdx.x / 8, d = threadIdx.x % 8 * 4;
    float4 v[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = keys.widen(raw[e]);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      *(float4*)(values + (four * DIMS + slot(d + e)) * 4) =
          make_float4(((const float*)&v[0])[e], ((const float*)&v[1])[e], ((const float*)&v[2])[e],
                      ((const float*)&v[3])[e]);
  }
};

// A part's scores, for the thread that makes them weights; returns V's scale of its key.
template <class Keys>
__device__ __forceinline__ float load_scores(const PartMemory& memory, const Keys& keys,
                                            const float* scores, int wide, int begin, int here, int g) {
  const int t = threadIdx.x % PART;
  if (t >= here) return 0.0f;
#pragma unroll 4
  for (int h = threadIdx.x / PART; h < memory.group; h += 32 * PART_WARPS / PART)
    memory.weight(h)[t] = scores[(long long)h * wide + begin + t];
  return Keys::scaled() ? *keys.scale(begin + t, g) : 1.0f;
}

// Four at once, for none to wait for another.
__device__ __forceinline__ void make_exponentials(float (&x)[4], int variants) {
  if (variants & LIBM_EXP) {
#pragma unroll
    for (int e = 0; e < 4; ++e) x[e] = library_expf(x[e]);
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e) x[e] = weight_expf(x[e], variants);
  }
}

template <class Keys>
__device__ __forceinline__ void weigh_part(const PartMemory& memory, float scale, int here,
                                           int variants) {
  constexpr int SIDE = 32 * PART_WARPS / PART;  // heads side by side
  const int t = threadIdx.x % PART;
#pragma unroll 1
  for (int first = threadIdx.x / PART; first < memory.group; first += 4 * SIDE) {
    float p[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int h = first + e * SIDE;
      const bool there = h < memory.group && t < here;
      p[e] = there ? __fsub_rn(memory.weight(h)[t], memory.tops()[h]) : 0.0f;
    }
    make_exponentials(p, variants);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int h = first + e * SIDE;
      if (h >= memory.group) break;
      const float weight = t < here ? p[e] : 0.0f;
      memory.weight(h)[t] = weight;
      if (Keys::scaled()) memory.factor(h)[t] = __fmul_rn(weight, scale);
    }
  }
}

// l of each head's part, a lane a head.
__device__ __forceinline__ void add_weights_of_part(const PartSums& sums, const PartMemory& memory,
                                                    int row, int g, int slice, int part, int here) {
  // step 3: l of a part, keys ascending; then parts ascending
  for (int h = threadIdx.x % 32; h < memory.group; h += 32)
    sums.l(row, g * memory.group + h, slice)[part] = chain_sum(memory.weight(h), here, 0.0f);
}

// Sums of a warp's heads from `h` on, for this lane's dimension.
template <class Keys>
__device__ __forceinline__ void add_part(float (&acc)[PART_HEADS], const PartMemory& memory, int h,
                                         int here) {
  const float* values = memory.values + slot(threadIdx.x % 32) * 4;
  const float* factor[PART_HEADS];
#pragma unroll
  for (int e = 0; e < PART_HEADS; ++e) {
    const int mine = min(h + e, memory.group - 1);
    factor[e] = Keys::scaled() ? memory.factor(mine) : memory.weight(mine);
    acc[e] = 0.0f;
  }
  // step 4: acc of a part, keys ascending; then parts ascending
#pragma unroll 8
  for (int four = 0; four < (here + 3) / 4; ++four) {
    const float4 v = *(const float4*)(values + four * 4 * DIMS);
#pragma unroll
    for (int e = 0; e < PART_HEADS; ++e) {
      const float4 f = *(const float4*)(factor[e] + four * 4);
      acc[e] = add_four(acc[e], make_float4(__fmul_rn(f.x, v.x), __fmul_rn(f.y, v.y),
                                            __fmul_rn(f.z, v.z), __fmul_rn(f.w, v.w)));
    }
  }
}

// Parts ascending, then acc / l. Grid (blocks of 32 dimensions, heads, M), block 32: a lane a dimension.
__device__ __forceinline__ void combine_parts(float* out, const PartSums& sums, int pos) {
  const int h = blockIdx.y, row = blockIdx.z, lane = threadIdx.x, first = blockIdx.x * DIMS;
  const int there = (pos + row) / PART + 1, d = min(first + lane, sums.hd - 1);
  const float *acc_of = sums.acc(row, h, 0) + d, *l_of = sums.l(row, h, blockIdx.x);
  wait_for_previous();
  let_next_start();
  float acc = 0.0f, l = 0.0f;
  for (int begin = 0; begin < there; begin += 32) {
    float parts[32];
    const float own = begin + lane < there ? l_of[begin + lane] : -0.0f;
#pragma unroll
    for (int e = 0; e < 32; ++e, acc_of += sums.hd) parts[e] = begin + e < there ? *acc_of : -0.0f;
#pragma unroll
    for (int e = 0; e < 32; ++e) {
      if (e % 8 == 0 && begin + e >= there) break;
      acc = __fadd_rn(acc, parts[e]);
      l = __fadd_rn(l, __shfl_sync(0xffffffffu, own, e));
    }
  }
  if (first + lane < sums.hd)
    out[((long long)row * sums.heads + h) * sums.hd + d] = __fdiv_rn(acc, l);
}

// Grid (any, n_kv * blocks of 32 dimensions, M), block 32 * PART_WARPS. `wide`: floats of scratch of
// a (row, head).
template <class Keys>
__device__ __forceinline__ void attend_parts(const PartSums& sums, const Keys& keys,
                                             const float* scratch, int pos, int wide, int variants,
                                             float* shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.z, seen = pos + row + 1;
  const int slices = sums.slices(), slice = blockIdx.y % slices, g = blockIdx.y / slices;
  const int first = slice * DIMS, group = sums.heads / keys.n_kv;
  const PartMemory memory = {shared, group};
  const float* scores = scratch + ((long long)row * sums.heads + g * group) * wide;
  const int there = (seen + PART - 1) / PART;
  Patch<Keys> patch;
  // values are not of the launch ahead: it started when all before it had ended
  const bool early = keys.by_words();
  if (early) patch.load(keys, blockIdx.x, seen, g, first);
  wait_for_previous();
  let_next_start();
  if (blockIdx.x >= there) return;
  if (!early) patch.load(keys, blockIdx.x, seen, g, first);
  for (int part = blockIdx.x; part < there; part += gridDim.x) {
    const int begin = part * PART, here = min(PART, seen - begin);
    const float scale = load_scores(memory, keys, scores, wide, begin, here, g);
    patch.store(keys, memory.values);
    if (part == blockIdx.x) {
      for (int h = warp; h < group; h += PART_WARPS) {
        const float* own = scores + (long long)h * wide;
        const float top = known_top(own, own + score_room(wide), seen);
        if (lane == 0) memory.tops()[h] = top;
      }
      __syncthreads();
    }
    weigh_part<Keys>(memory, scale, here, variants);
    __syncthreads();
    patch.load(keys, part + gridDim.x, seen, g, first);
    for (int h = warp * PART_HEADS; h < group; h += PART_WARPS * PART_HEADS) {
      float acc[PART_HEADS];
      add_part<Keys>(acc, memory, h, here);
#pragma unroll
      for (int e = 0; e < PART_HEADS; ++e)
        if (h + e < group && first + lane < keys.hd)
          sums.acc(row, g * group + h + e, part)[first + lane] = acc[e];
    }
    if (warp == PART_WARPS - 1) add_weights_of_part(sums, memory, row, g, slice, part, here);
    __syncthreads();
  }
}
