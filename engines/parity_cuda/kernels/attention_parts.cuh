// attention_parts: keys in parts of PART, each summed by itself, then the parts. Contract 5, split_keys.
// One launch after attention_scores.cuh, which leaves every score and the largest of each 32. A block: one
// row of a query head, 32 dimensions. Its warps take parts in turn, a lane a dimension and each lane l
// beside it; the first warp adds what a round of them has made. Every sum is one thread's: no launch shape
// can change a bit. Past the last key p and v are +0.0, which changes no sum that began with +0.0.
// A Chunk type says how a lane gets its dimension of 32 keys.
#pragma once
#include "attention.cuh"

#define PART 128       // keys of a part: a lane makes four of its weights
#define PARTS_AT_ONCE 16  // most warps of a block

struct PartMemory {
  struct Warp {
    float weight[PART], factor[PART];  // factor: the weight times V's scale
    unsigned room[32 * 8];             // of a Chunk
  };
  Warp warps[PARTS_AT_ONCE];
  float sums[2][PARTS_AT_ONCE][DIMS + 1];  // of two rounds' parts; the last one is l
};

// One block's work: a row of a query head, 32 dimensions from `first` on.
struct PartJob {
  const float* scores;
  int keys, first, g, variants;
};

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

// Weights of a part, by one warp.
template <class Keys>
__device__ __forceinline__ void weigh_part(PartMemory::Warp& to, const PartJob& job, const Keys& keys,
                                           float top, int part) {
  const int begin = part * PART + threadIdx.x % 32;
  float p[4], scale[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int t = min(begin + e * 32, job.keys - 1);
    p[e] = __fsub_rn(__ldcg(job.scores + t), top);
    scale[e] = Keys::scaled() ? __ldcg(keys.scale(t, job.g)) : 1.0f;
  }
  make_exponentials(p, job.variants);
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int at = threadIdx.x % 32 + e * 32;
    const bool there = begin + e * 32 < job.keys;
    to.weight[at] = there ? p[e] : 0.0f;
    if (Keys::scaled()) to.factor[at] = there ? __fmul_rn(p[e], scale[e]) : 0.0f;
  }
}

struct PartSums {
  float acc, l;
};

// 32 keys of a part, `begin` of it and after.
template <class Keys, class Chunk>
__device__ __forceinline__ void add_chunk(PartSums& sums, const PartMemory::Warp& from, const Keys& keys,
                                          const Chunk& chunk, int begin) {
#pragma unroll
  for (int four = 0; four < 8; ++four) {
    const float4 v = chunk.four(keys, four), p = *(const float4*)(from.weight + begin + four * 4);
    const float4 f = Keys::scaled() ? *(const float4*)(from.factor + begin + four * 4) : p;
    // step 3: l of a part, keys ascending; then parts ascending
    sums.l = add_four(sums.l, p);
    // step 4: acc of a part, keys ascending; then parts ascending
    sums.acc = add_four(sums.acc, make_float4(__fmul_rn(f.x, v.x), __fmul_rn(f.y, v.y),
                                              __fmul_rn(f.z, v.z), __fmul_rn(f.w, v.w)));
  }
}

// Grid (blocks of 32 dimensions, heads, rows), block of up to PARTS_AT_ONCE warps. `wide`: floats of
// scratch of a (row, head).
template <class Chunk, class Keys>
__device__ __forceinline__ void attend_parts(float* out, const Keys& keys, const float* scratch, int pos,
                                             int wide, int variants, PartMemory& memory) {
  const int heads = gridDim.y, h = blockIdx.y, first = blockIdx.x * DIMS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const long long row = (long long)blockIdx.z * heads + h;
  const float *scores = scratch + row * wide, *peaks = scores + score_room(wide);
  const PartJob job = {scores, pos + (int)blockIdx.z + 1, first, h / (heads / keys.n_kv), variants};
  const int parts = (job.keys + PART - 1) / PART;
  PartMemory::Warp& mine = memory.warps[warp];
  Chunk chunk;
  // values are not of the launch ahead: it started when all before it had ended
  chunk.ask(keys, job, warp * PART);
  wait_for_previous();
  let_next_start();
  const float top = known_top(scores, peaks, job.keys);
  PartSums all = {0.0f, 0.0f};
#pragma unroll 1
  for (int begin = 0, turn = 0; begin < parts; begin += warps, turn ^= 1) {
    const int part = begin + warp;
    if (part < parts) {
      __syncwarp();
      weigh_part(mine, job, keys, top, part);
      __syncwarp();
      PartSums sums = {0.0f, 0.0f};
#pragma unroll 1
      for (int at = 0; at < PART; at += 32) {
        chunk.settle(mine.room);
        const int next = at + 32 < PART ? part * PART + at + 32 : (part + warps) * PART;
        chunk.ask(keys, job, next);
        add_chunk(sums, mine, keys, chunk, at);
      }
      memory.sums[turn][warp][lane] = sums.acc;
      if (lane == 0) memory.sums[turn][warp][DIMS] = sums.l;
    }
    __syncthreads();
    if (warp == 0) {
#pragma unroll 1
      for (int each = 0; each < min(warps, parts - begin); ++each) {
        all.acc = __fadd_rn(all.acc, memory.sums[turn][each][lane]);
        all.l = __fadd_rn(all.l, memory.sums[turn][each][DIMS]);
      }
    }
  }
  if (warp == 0 && first + lane < keys.hd)
    out[row * keys.hd + first + lane] = __fdiv_rn(all.acc, all.l);
}
