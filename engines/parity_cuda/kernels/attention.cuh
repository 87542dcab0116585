// attention: what the attention ops of both storages share. Contract 1.8, 5.
// First launch: every score once, with the keys of a KV head read once for its query heads and for
// all M rows (attend_scores). Second: a block for each (row, head, 32 dimensions) walks the keys in
// tiles, each tile handed from warp to warp, all of them at work on different tiles between two
// barriers (attend): four warps make maxima, corrections and weights of tile i; four the products
// of tile i - 1; one the accumulators' chains of tile i - 2, a lane a dimension; one that of l. Only
// the chains are serial, and each is one thread's: no launch shape can change a bit.
// A Keys type says how K and V are stored.
#pragma once
#include "async_copy.cuh"
#include "chain.cuh"
#include "tree.cuh"
#include "warp.cuh"

#define TILE 128         // keys of a tile
#define DIMS 32          // dimensions of a block: a lane each
#define MAKERS 128       // threads that make weights, and as many that make products
#define ATTEND_THREADS 320
#define SCORE_KEYS 32    // keys of a block of scores: a lane each
#define SCORE_WARPS 8

// What a tile of keys is handed on with. weight: p; correction: c, 1 where the maximum stays; moved:
// a bit for each key whose c is not 1; factor: p times V's scale.
struct KeyTile {
  float weight[TILE];
  float correction[TILE];
  float factor[TILE];
  unsigned moved[4];
};

// Everything of one block; 16-byte loads and stores of products meet no bank twice, see slot().
struct AttentionMemory {
  float product[2][TILE / 4][DIMS][4];
  KeyTile tile[3];
  float part[MAKERS];
  float total;
};

// Where dimension d of a tile's products stands among 32.
__device__ __forceinline__ int slot(int d) { return (d & 24) | ((d & 7) ^ (d >> 3)); }

// ---- scores

// scores: (M, n_q, wide); row m sees keys 0 .. pos + m. Grid (any, n_kv), block (32, SCORE_WARPS).
template <class Keys>
__device__ __forceinline__ void attend_scores(float* scores, const Keys& keys, int pos, int count,
                                              int wide, int heads, float* shared) {
  const int g = blockIdx.y, group = heads / gridDim.y, lane = threadIdx.x;
  for (int from = blockIdx.x * SCORE_KEYS; from < pos + count; from += gridDim.x * SCORE_KEYS) {
    const int here = min(SCORE_KEYS, pos + count - from);
    keys.stage(shared, from, here, g);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    for (int job = threadIdx.y; job < group * count; job += SCORE_WARPS) {
      const int m = job / group, h = g * group + job - m * group, t = from + lane;
      if (lane < here && t <= pos + m)
        scores[((long long)m * heads + h) * wide + t] = keys.score(shared, lane, t, g, m * heads + h);
    }
    __syncthreads();
  }
}

// ---- chains

__device__ __forceinline__ float corrected_four(float acc, float4 x, float4 c) {
  acc = __fadd_rn(__fmul_rn(acc, c.x), x.x);
  acc = __fadd_rn(__fmul_rn(acc, c.y), x.y);
  acc = __fadd_rn(__fmul_rn(acc, c.z), x.z);
  return __fadd_rn(__fmul_rn(acc, c.w), x.w);
}

__device__ __forceinline__ void load_keys(Sixteen& to, const float* x, int step, int part) {
#pragma unroll
  for (int i = 0; i < 4; ++i) to.four[i] = *(const float4*)(x + (4 * part + i) * step);
}

// Goes on with a chain over a tile: x[key / 4 * step + key % 4]. Where no maximum moved, c = 1 is left
// out: that way has no branch, so that loads stay sixteen keys ahead. Past the last key x is -0.0 and
// c is 1, which changes no accumulator.
__device__ __forceinline__ float chain_tile(float acc, const float* x, int step,
                                            const KeyTile& tile) {
  const uint4 moved = *(const uint4*)tile.moved;
  if (!(moved.x | moved.y | moved.z | moved.w)) {
    Sixteen one, other;
    load_keys(one, x, step, 0);
#pragma unroll 1
    for (int part = 0; part < TILE / 16; part += 2) {
      load_keys(other, x, step, part + 1);
      acc = add_sixteen(acc, one);
      load_keys(one, x, step, min(part + 2, TILE / 16 - 1));
      acc = add_sixteen(acc, other);
    }
    return acc;
  }
#pragma unroll 1
  for (int part = 0; part < TILE / 16; ++part) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 c = *(const float4*)(tile.correction + 16 * part + 4 * i);
      acc = corrected_four(acc, *(const float4*)(x + (4 * part + i) * step), c);
    }
  }
  return acc;
}

// ---- weights

// One tile's maxima, corrections and weights, by MAKERS threads, a key each; best: the maximum of
// the keys before the tile, then of those up to its end. score: of all four of a lane's keys.
__device__ __forceinline__ void online_softmax(KeyTile& tile, const float (&score)[4], float& best,
                                               int from, int keys, int variants) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = from + threadIdx.x;
  float s = score[0], before = best, all = best;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if (w == warp) s = score[w];
    if (w < warp) before = fmaxf(before, score[w]);
    all = fmaxf(all, score[w]);
  }
  float upto = s;
  // step 2: running maximum, correction, weight; the first key by definition
#pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    const float lower = __shfl_up_sync(0xffffffffu, upto, by);
    before = fmaxf(before, __shfl_xor_sync(0xffffffffu, before, by));
    all = fmaxf(all, __shfl_xor_sync(0xffffffffu, all, by));
    if (lane >= by) upto = fmaxf(upto, lower);
  }
  const float lower = __shfl_up_sync(0xffffffffu, upto, 1);
  if (lane > 0) before = fmaxf(before, lower);
  if (best != best) before = best;  // a first score that is a NaN stays the maximum
  // an infinite maximum has no correction of 1: inf - inf is a NaN
  const bool odd = __fsub_rn(before, before) != 0.0f;
  const bool moved = t < keys && t > 0 && (s > before || odd);
  const float top = s > before ? s : before;
  float p = -0.0f, c = 1.0f;
  if (t < keys) p = t > 0 ? any_expf(__fsub_rn(s, top), variants) : 1.0f;
  if (moved) c = any_expf(__fsub_rn(before, top), variants);
  tile.weight[threadIdx.x] = p;
  tile.correction[threadIdx.x] = c;
  const unsigned bits = __ballot_sync(0xffffffffu, moved);
  if (lane == 0) tile.moved[warp] = bits;
  if (best == best) best = all;
}

// Both chains over a tile by one text, which two warps run: the accumulators', a lane a dimension,
// and that of l.
__device__ __forceinline__ float add_tile(float acc, const KeyTile& tile,
                                          const float (&product)[TILE / 4][DIMS][4], bool values) {
  // step 3: l = l * c + p
  const float* from = values ? product[0][slot(threadIdx.x % 32)] : tile.weight;
  return chain_tile(acc, from, values ? DIMS * 4 : 4, tile);
}

// Sum of width * 2^n values by halving, of which a thread holds every width-th from its own number
// on: value(k) of k = 0 .. 2^n - 1. The halves meet in the order of the reversed bits of k.
template <class Value>
__device__ __forceinline__ float strided_tree(int count, const Value& value) {
  float partial[32];
  int bits = 0;
  while (1 << bits < count) ++bits;
  for (int j = 0; j < count; ++j) {
    float sum = value(bits ? (int)(__brev((unsigned)j) >> (32 - bits)) : 0);
    int level = 0;
    for (; j >> level & 1; ++level) sum = __fadd_rn(partial[level], sum);
    partial[level] = sum;
  }
  return partial[bits];
}

// A key's weight where the maximum is known; +0.0 past the last key.
struct WeightOf {
  const float* scores;
  float top;
  int keys, variants;

  __device__ float operator()(int t) const {
    return t < keys ? any_expf(__fsub_rn(scores[t], top), variants) : 0.0f;
  }
};

// Every width-th of them, from `first` on.
struct StridedWeights {
  WeightOf weight;
  int first, width;

  __device__ float operator()(int k) const { return weight(first + k * width); }
};

// The maximum of all scores and, with it known, l by tree: by all threads of the block.
__device__ __forceinline__ float two_pass_softmax(AttentionMemory& memory, const float* scores,
                                                  int keys, int variants) {
  const int thread = threadIdx.x, n = power_of_two(keys), width = min(MAKERS, n);
  // step 2: maximum, any order, then weights
  float top = scores[0];  // a NaN there stays the maximum
  if (thread < MAKERS) {
    float some = top;
    for (int t = thread; t < keys; t += MAKERS) some = fmaxf(some, scores[t]);
    memory.part[thread] = some;
  }
  __syncthreads();
  if (top == top)
    for (int w = 0; w < MAKERS; ++w) top = fmaxf(top, memory.part[w]);
  __syncthreads();
  if (thread < width) {
    const WeightOf weight = {scores, top, keys, variants};
    memory.part[thread] = strided_tree(n / width, StridedWeights{weight, thread, width});
  }
  __syncthreads();
  // step 3: l by tree
  const float total = tree_sum(memory.part, width);
  if (thread == 0) memory.total = total;
  return top;
}

// The weights of a tile with the maximum known: no correction.
__device__ __forceinline__ void known_softmax(KeyTile& tile, const float (&score)[4], float top,
                                              int from, int keys, int variants) {
  const int t = from + threadIdx.x;
  float s = score[0];
#pragma unroll
  for (int w = 1; w < 4; ++w)
    if (w == threadIdx.x / 32) s = score[w];
  tile.weight[threadIdx.x] = t < keys ? any_expf(__fsub_rn(s, top), variants) : -0.0f;
  if (threadIdx.x % 32 == 0) tile.moved[threadIdx.x / 32] = 0;
}

// ---- the walk

// Products of a tile by MAKERS threads: four keys and four dimensions at a time, two such a thread.
// here: keys of the tile; the values of others are +0.0, so that -0.0 times them is the weight's -0.0.
template <class Keys>
__device__ __forceinline__ void make_products(float (&to)[TILE / 4][DIMS][4], const KeyTile& tile,
                                              const Keys& keys, int here,
                                              const typename Keys::Raw (&raw)[2][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, d = lane % 8 * 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int four = warp * 8 + i * 4 + lane / 8;
    const float4 p = *(const float4*)(keys.scaled() ? tile.factor + four * 4 : tile.weight + four * 4);
    float4 v[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = keys.widen(keys.there(raw[i][e], four * 4 + e < here));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float4 x = {__fmul_rn(p.x, ((const float*)&v[0])[e]),
                        __fmul_rn(p.y, ((const float*)&v[1])[e]),
                        __fmul_rn(p.z, ((const float*)&v[2])[e]),
                        __fmul_rn(p.w, ((const float*)&v[3])[e])};
      *(float4*)to[four][slot(d + e)] = x;
    }
  }
}

// Values for make_products. No load is under a condition, as in chain_sum: keys and dimensions that
// are not there are taken from the last ones.
template <bool WORDS, class Keys>
__device__ __forceinline__ void load_values(typename Keys::Raw (&raw)[2][4], const Keys& keys,
                                            int from, int count, int g, int first) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int t = min(from + (warp * 8 + i * 4 + lane / 8) * 4 + e, count - 1);
      const int d = first + lane % 8 * 4;
      raw[i][e] = WORDS ? keys.whole(t, g, min(d, keys.hd - 4)) : keys.some(t, g, d);
    }
}

// Four scores of a lane, one of each warp's keys; past the last key that one's, no new maximum.
__device__ __forceinline__ void load_scores(float (&score)[4], const float* scores, int from,
                                            int keys) {
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    score[w] = scores[min(from + w * 32 + (int)threadIdx.x % 32, keys - 1)];
  }
}

// out: (hd,) of this (row, head); scores: its own; first: of the block's dimensions.
template <bool WORDS, class Keys>
__device__ __forceinline__ void attend_tiles(float* out, const Keys& keys, const float* scores,
                                             int count, int g, int first, int hd, int variants,
                                             AttentionMemory& memory) {
  const int role = threadIdx.x / MAKERS, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tiles = (count + TILE - 1) / TILE;
  const bool known = variants & TWO_PASS;
  float best = __uint_as_float(0xff800000u), acc = 0.0f;
  float score[4], scale = 0.0f;
  typename Keys::Raw raw[2][4];
  if (role == 0) load_scores(score, scores, 0, count), scale = keys.scale(threadIdx.x, count, g);
  if (scores[0] != scores[0]) best = scores[0];
  if (role == 1) load_values<WORDS>(raw, keys, 0, count, g, first);
  if (known) best = two_pass_softmax(memory, scores, count, variants);
  for (int i = 0; i < tiles + 2; ++i) {
    if (role == 0 && i < tiles) {
      KeyTile& tile = memory.tile[i % 3];
      const float given[4] = {score[0], score[1], score[2], score[3]}, v_scale = scale;
      load_scores(score, scores, (i + 1) * TILE, count);
      scale = keys.scale((i + 1) * TILE + threadIdx.x, count, g);
      if (known) {
        known_softmax(tile, given, best, i * TILE, count, variants);
      } else {
        online_softmax(tile, given, best, i * TILE, count, variants);
      }
      const bool there = i * TILE + (int)threadIdx.x < count;
      if (keys.scaled())
        tile.factor[threadIdx.x] = there ? __fmul_rn(tile.weight[threadIdx.x], v_scale) : -0.0f;
    } else if (role == 1 && i > 0 && i <= tiles) {
      typename Keys::Raw now[2][4];
#pragma unroll
      for (int e = 0; e < 8; ++e) now[e / 4][e % 4] = raw[e / 4][e % 4];
      load_values<WORDS>(raw, keys, i * TILE, count, g, first);
      make_products(memory.product[i % 2], memory.tile[(i - 1) % 3], keys, count - (i - 1) * TILE,
                    now);
    } else if (role == 2 && i > 1) {
      const bool values = warp == 2 * MAKERS / 32;
      if (values || !known)
        acc = add_tile(acc, memory.tile[(i - 2) % 3], memory.product[(i - 1) % 2], values);
    }
    __syncthreads();
  }
  if (!known && threadIdx.x == ATTEND_THREADS - 1) memory.total = acc;
  __syncthreads();
  // step 5: acc / l
  if (warp == 2 * MAKERS / 32 && first + lane < hd)
    out[first + lane] = __fdiv_rn(acc, memory.total);
}

template <class Keys>
__device__ __forceinline__ void attend(float* out, const Keys& keys, const float* scores, int count,
                                       int g, int first, int hd, int variants,
                                       AttentionMemory& memory) {
  if (keys.by_words()) {
    attend_tiles<true>(out, keys, scores, count, g, first, hd, variants, memory);
  } else {
    attend_tiles<false>(out, keys, scores, count, g, first, hd, variants, memory);
  }
}
