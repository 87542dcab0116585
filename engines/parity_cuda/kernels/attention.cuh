// attention: what the attention ops of both storages share. Contract 1.8, 5.
// First launch: every score once (attention_scores.cuh). Second: a block for each query head, up to
// eight chains of it, a chain being 32 dimensions of one row. Keys go through the block in tiles.
// Twelve warps make a tile's weights, corrections and values, in groups of four that each have a
// tile of their own at work; a warp a chain adds them up, a lane a dimension, and one more adds up
// l, a lane a row. Only the chains are serial, and each is one thread's: no launch shape can change
// a bit. They wait for nothing but a tile: while one is added the groups make the next three. Most
// threads: 21 warps, for eight chains.
// A Keys type says how K and V are stored.
#pragma once
#include "attention_scores.cuh"
#include "barriers.cuh"

#define TILE 128      // keys of a tile, 32 for each warp that makes it
#define DIMS 32       // dimensions of a chain: a lane each
#define TILE_GROUPS 3      // tiles at work
#define MAKERS 12     // warps that make tiles, four a group

// Barriers by number, those of tiles one a group.
#define TILE_FULL 1       // a tile is made: the chains wait
#define TILE_FULL_SUM 4   // the same for l
#define TILE_EMPTY 7      // a tile is added: its makers wait
#define ALL_TOTALS 10

// What one row of queries makes of a tile's keys. weight: p; correction: c, 1 where the maximum
// stays; factor: p times V's scale; moved: a bit for each key whose c is not 1.
struct KeyRow {
  float weight[TILE + 4];  // the padding keeps rows in different banks
  float correction[TILE + 4];
  float factor[TILE + 4];
  unsigned moved[4];
};

// Where dimension d of a tile's values stands among 32: 16-byte accesses meet no bank twice.
__device__ __forceinline__ int slot(int d) { return (d & 24) | ((d & 7) ^ (d >> 3)); }

// One block's work: `rows` rows of head h from row `first_row` on, `parts` times 32 dimensions from
// `first` on.
struct Job {
  float* memory;
  const float* scores;  // of the first row; the next row's are `step` on
  long long step;
  int keys;  // of the first row
  int rows, parts, first, hd, g, room, variants;

  __device__ int keys_of(int r) const { return keys + r; }
  __device__ int all_keys() const { return keys + rows - 1; }
  __device__ int tiles() const { return (all_keys() + TILE - 1) / TILE; }
  __device__ int chains() const { return rows * parts; }
  __device__ bool known() const { return variants & TWO_PASS; }
  __device__ const float* scores_of(int r) const { return scores + r * step; }
  __device__ const float* peaks_of(int r) const { return scores + r * step + room; }

  __device__ float* tile(int group) const {
    return memory + group * (parts * TILE * DIMS + rows * (int)(sizeof(KeyRow) / 4));
  }
  // A tile's values: [four keys][slot of the dimension][key of the four].
  __device__ float* values(int group, int part) const { return tile(group) + part * TILE * DIMS; }
  __device__ KeyRow& row(int group, int r) const {
    return ((KeyRow*)values(group, parts))[r];
  }
  __device__ float* totals() const { return tile(TILE_GROUPS); }
};

// ---- weights

// The exponentials of variants, kept out of the way of the exact tier's.
__device__ __noinline__ float other_expf(float x, int variants) { return any_expf(x, variants); }

__device__ __forceinline__ float weight_expf(float x, int variants) {
  return variants & (LIBM_EXP | EXP_VIA_DOUBLE) ? other_expf(x, variants) : ucrt_expf(x);
}

// What a maker's lane needs for 32 keys of a row: asked for one turn ahead.
struct Asked {
  float score, peak, scale;
};

template <class Keys>
__device__ __forceinline__ void ask(Asked& to, const Job& job, const Keys& keys, int tile, int warp,
                                    int r) {
  const int lane = threadIdx.x % 32, chunk = tile * 4 + warp, last = job.keys_of(r) - 1;
  const int since = tile < TILE_GROUPS ? chunk : MAKERS;  // chunks since this warp's last one
  const int t = min(chunk * 32 + lane, last);
  to.score = job.scores_of(r)[t];
  to.peak = NO_SCORE;
  if (lane < since) to.peak = job.peaks_of(r)[min(chunk - since + lane, last / 32)];
  to.scale = keys.scale(t, job.g);
}

struct Weights {
  float p, c;
  bool moved;
};

// best: in lane r the maximum of row r's keys up to this warp's last chunk, with it. t: this lane's key.
__device__ __forceinline__ Weights online_softmax(const Asked& asked, float& best, int r, int t,
                                                  int keys, int variants) {
  const int lane = threadIdx.x % 32;
  float peak = asked.peak, upto = asked.score;
  float before = __shfl_sync(0xffffffffu, best, r);
  const bool first_is_nan = before != before;  // it stays the maximum
#pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    const float lower = __shfl_up_sync(0xffffffffu, upto, by);
    peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, by));
    if (lane >= by) upto = fmaxf(upto, lower);
  }
  if (!first_is_nan) before = fmaxf(before, peak);
  if (lane == r) best = before;
  const float lower = __shfl_up_sync(0xffffffffu, upto, 1);
  if (lane > 0 && !first_is_nan) before = fmaxf(before, lower);
  // step 2: running maximum, correction, weight; the first key by definition
  const float s = asked.score, top = s > before ? s : before;
  // an infinite maximum has no correction of 1: inf - inf is a NaN
  const bool odd = __fsub_rn(before, before) != 0.0f;
  Weights made = {-0.0f, 1.0f, t < keys && t > 0 && (s > before || odd)};
  if (t < keys) made.p = t > 0 ? weight_expf(__fsub_rn(s, top), variants) : 1.0f;
  if (made.moved) made.c = weight_expf(__fsub_rn(before, top), variants);
  return made;
}

// ---- chains

__device__ __forceinline__ int piece_bits(uint4 moved, int piece) {
  const unsigned low = piece < 2 ? moved.x : moved.y, high = piece < 6 ? moved.z : moved.w;
  return (piece < 4 ? low : high) >> piece % 2 * 16 & 0xffff;
}

// Sixteen keys of which `left` are there, where a maximum may move. c = 1 multiplies exactly.
__device__ __forceinline__ float careful_sixteen(float acc, const Sixteen& x, const float* correction,
                                                 int bits, int left) {
  if (!bits && left >= 16) return add_sixteen(acc, x);
  Sixteen c;
  c.load(correction);
#pragma unroll
  for (int e = 0; e < 16; ++e) {
    const float next = __fadd_rn(__fmul_rn(acc, ((const float*)&c)[e]), ((const float*)&x)[e]);
    acc = e < left ? next : acc;
  }
  return acc;
}

// x of an accumulator's chain: p times v, the factor made by Keys' rule.
template <bool SCALED>
struct ProductChain {
  struct Ahead {
    Sixteen value, factor;
  };
  const Job& job;
  int part, r;

  __device__ int keys() const { return job.keys_of(r); }
  __device__ const KeyRow& row(int group) const { return job.row(group, r); }
  __device__ bool same(bool mine) const { return mine; }  // for all lanes: they share a row

  __device__ void load(Ahead& to, int group, int piece) const {
    const float* value = job.values(group, part) + piece * 16 * DIMS + slot(threadIdx.x % 32) * 4;
    const float* factor = (SCALED ? row(group).factor : row(group).weight) + piece * 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) to.value.four[i] = *(const float4*)(value + i * 4 * DIMS);
    to.factor.load(factor);
  }

  __device__ Sixteen made(const Ahead& from) const { return products(from.factor, from.value); }
};

// x of l's chain, a lane a row. Past a row's last key p is -0.0, which changes no sum.
struct WeightChain {
  typedef Sixteen Ahead;
  const Job& job;

  __device__ int keys() const { return job.tiles() * TILE; }
  __device__ const KeyRow& row(int group) const {
    return job.row(group, min((int)threadIdx.x % 32, job.rows - 1));
  }
  __device__ bool same(bool mine) const { return __all_sync(0xffffffffu, mine); }

  __device__ void load(Ahead& to, int group, int piece) const {
    to.load(row(group).weight + piece * 16);
  }

  __device__ Sixteen made(const Ahead& from) const {
    // step 3: l = l * c + p
    return from;
  }
};

// Goes through all tiles. Loads stay sixteen keys ahead, over the border of a tile too, and products
// are made before they are needed. A tile in which no maximum moves takes a way without a branch.
template <class Chain>
__device__ __forceinline__ float run_chain(const Chain& chain, const Job& job, int full, int waiting) {
  const int tiles = job.tiles(), emptying = 32 * (job.chains() + !job.known() + 4);
  float acc = 0.0f;
  typename Chain::Ahead ahead;
  barrier_sync(full, waiting);
  chain.load(ahead, 0, 0);
  uint4 moved = *(const uint4*)chain.row(0).moved;
  Sixteen x = chain.made(ahead);
  for (int i = 0, group = 0; i < tiles; ++i) {
    const int left = chain.keys() - i * TILE, next = group + 1 < TILE_GROUPS ? group + 1 : 0;
    const float* correction = chain.row(group).correction;
    const bool plain = chain.same(left >= TILE && !(moved.x | moved.y | moved.z | moved.w));
    if (plain) {
#pragma unroll
      for (int piece = 0; piece < TILE / 16 - 1; ++piece) {
        chain.load(ahead, group, piece + 1);
        acc = add_sixteen(acc, x);
        x = chain.made(ahead);
      }
    } else {
#pragma unroll 1
      for (int piece = 0; piece < TILE / 16 - 1; ++piece) {
        chain.load(ahead, group, piece + 1);
        acc = careful_sixteen(acc, x, correction + piece * 16, piece_bits(moved, piece),
                              left - piece * 16);
        x = chain.made(ahead);
      }
    }
    const int last = TILE / 16 - 1, bits = piece_bits(moved, last);
    if (i + 1 < tiles) {
      barrier_sync(full + next, waiting);
      chain.load(ahead, next, 0);
      moved = *(const uint4*)chain.row(next).moved;
    }
    if (plain) {
      acc = add_sixteen(acc, x);
    } else {
      acc = careful_sixteen(acc, x, correction + last * 16, bits, left - last * 16);
    }
    x = chain.made(ahead);
    if (i + TILE_GROUPS < tiles) barrier_arrive(TILE_EMPTY + group, emptying);
    group = next;
  }
  return acc;
}

// ---- contract 5, two_pass

// The maximum of a row's scores, by one warp.
__device__ __noinline__ float known_top(const float* scores, const float* peaks, int keys) {
  float top = NO_SCORE;
  for (int chunk = threadIdx.x % 32; chunk * 32 < keys; chunk += 32) top = fmaxf(top, peaks[chunk]);
  top = warp_max(top);
  return scores[0] != scores[0] ? scores[0] : top;  // a NaN there stays the maximum
}

// The maximum is known, there is no correction. best: in lane r that of row r.
__device__ __forceinline__ Weights known_softmax(const Asked& asked, float best, int r, int t,
                                                 int keys, int variants) {
  // step 2: maximum, any order, then weights
  const float top = __shfl_sync(0xffffffffu, best, r);
  Weights made = {-0.0f, 1.0f, false};
  if (t < keys) made.p = weight_expf(__fsub_rn(asked.score, top), variants);
  return made;
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

// Every width-th weight, from `first` on, where the maximum is known; +0.0 past the last key.
struct StridedWeights {
  const float* scores;
  float top;
  int keys, variants, first, width;

  __device__ float operator()(int k) const {
    const int t = first + k * width;
    return t < keys ? weight_expf(__fsub_rn(scores[t], top), variants) : 0.0f;
  }
};

// l of a row, by one warp; for lane 0.
__device__ __noinline__ float known_total(const float* scores, float top, int keys, int variants) {
  int n = 1;
  while (n < keys) n *= 2;
  const int lane = threadIdx.x % 32, width = min(32, n);
  const StridedWeights weights = {scores, top, keys, variants, lane, width};
  float sum = lane < width ? strided_tree(n / width, weights) : 0.0f;
  // step 3: l by tree
  for (int half = width / 2; half > 0; half /= 2)
    sum = __fadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, half));
  return sum;
}

// The maximum of each row, in its lane.
__device__ __forceinline__ float known_tops(const Job& job) {
  float best = NO_SCORE;
  for (int r = 0; r < job.rows; ++r) {
    const float top = known_top(job.scores_of(r), job.peaks_of(r), job.keys_of(r));
    if ((int)threadIdx.x % 32 == r) best = top;
  }
  return best;
}

// ---- tiles

// Values of a warp's 32 keys and 32 dimensions: four keys and four dimensions at a time, two such a
// lane. No load is under a condition: keys and dimensions that are not there are taken from the last.
template <bool WORDS, class Keys>
__device__ __forceinline__ void load_values(typename Keys::Raw (&raw)[2][4], const Keys& keys,
                                            const Job& job, int tile, int warp, int part) {
  const int lane = threadIdx.x % 32, d = job.first + part * DIMS + lane % 8 * 4;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int four = warp * 8 + i * 4 + lane / 8;
      const int t = min(tile * TILE + four * 4 + e, job.all_keys() - 1);
      raw[i][e] = WORDS ? keys.whole(t, job.g, min(d, job.hd - 4)) : keys.some(t, job.g, d);
    }
}

template <class Keys>
__device__ __forceinline__ void store_values(float* to, const typename Keys::Raw (&raw)[2][4],
                                             const Keys& keys, int warp) {
  const int lane = threadIdx.x % 32, d = lane % 8 * 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int four = warp * 8 + i * 4 + lane / 8;
    float4 v[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = keys.widen(raw[i][e]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float4 x = {((const float*)&v[0])[e], ((const float*)&v[1])[e],
                        ((const float*)&v[2])[e], ((const float*)&v[3])[e]};
      *(float4*)(to + (four * DIMS + slot(d + e)) * 4) = x;
    }
  }
}

__device__ __forceinline__ void store_weights(KeyRow& to, const Weights& made, float scale, int warp) {
  const int key = warp * 32 + threadIdx.x % 32;
  to.weight[key] = made.p;
  to.correction[key] = made.c;
  to.factor[key] = __fmul_rn(made.p, scale);
  const unsigned bits = __ballot_sync(0xffffffffu, made.moved);
  if (threadIdx.x % 32 == 0) to.moved[warp] = bits;
}

// Every third tile, 32 keys of it. What the launch of the scores did not write is asked for before it
// has ended: whatever came before that launch had ended when it started.
template <bool WORDS, class Keys>
__device__ __forceinline__ void make_tiles(const Keys& keys, const Job& job, int group, int warp) {
  const int tiles = job.tiles(), lane = threadIdx.x % 32, made = 32 * (job.chains() + 4);
  const int emptied = made + 32 * !job.known();
  typename Keys::Raw raw[2][4];
  Asked asked;
  load_values<WORDS>(raw, keys, job, group, warp, 0);
  wait_for_previous();
  let_next_start();
  // online_softmax starts from a first score that is a NaN, else from nothing
  float best = job.scores_of(min(lane, job.rows - 1))[0];
  ask(asked, job, keys, group, warp, 0);
  if (best == best) best = NO_SCORE;
  if (job.known()) best = known_tops(job);
  for (int i = group; i < tiles; i += TILE_GROUPS) {
    for (int r = 0; r < job.rows; ++r) {
      const Asked now = asked;
      const bool over = r + 1 == job.rows;
      ask(asked, job, keys, over ? i + TILE_GROUPS : i, warp, over ? 0 : r + 1);
      const int t = i * TILE + warp * 32 + lane, seen = job.keys_of(r);
      const Weights weights = job.known() ? known_softmax(now, best, r, t, seen, job.variants)
                                          : online_softmax(now, best, r, t, seen, job.variants);
      if (r == 0 && i >= TILE_GROUPS) barrier_sync(TILE_EMPTY + group, emptied);
      store_weights(job.row(group, r), weights, now.scale, warp);
    }
    for (int part = 0; part < job.parts; ++part) {
      const bool over = part + 1 == job.parts;
      store_values(job.values(group, part), raw, keys, warp);
      load_values<WORDS>(raw, keys, job, over ? i + TILE_GROUPS : i, warp, over ? 0 : part + 1);
    }
    barrier_arrive(TILE_FULL + group, made);
    if (!job.known()) barrier_arrive(TILE_FULL_SUM + group, 5 * 32);
  }
}

// ---- roles

// Warps 0 .. chains - 1 have a chain each, the next l, the others make tiles. A single chain is alone
// on its scheduler, which takes every fourth warp.
__device__ __forceinline__ int maker_of(int warp, int chains) {
  if (chains > 1) return warp - chains - 1;
  return warp % 4 ? warp - 2 - (warp - 1) / 4 : -1;
}

template <class Keys>
__device__ __forceinline__ void add_chain(float* out, const Job& job, int chain, int heads) {
  const int lane = threadIdx.x % 32, part = chain % job.parts, r = chain / job.parts;
  const ProductChain<Keys::scaled()> products = {job, part, r};
  const float acc = run_chain(products, job, TILE_FULL, 32 * (job.chains() + 4));
  barrier_sync(ALL_TOTALS, 32 * (job.chains() + 1));
  // step 5: acc / l
  const int d = job.first + part * DIMS + lane;
  if (d < job.hd) out[(long long)r * heads * job.hd + d] = __fdiv_rn(acc, job.totals()[r]);
}

__device__ __forceinline__ void add_weights(const Job& job) {
  const int lane = threadIdx.x % 32;
  if (job.known()) {
    for (int r = 0; r < job.rows; ++r) {
      const float* scores = job.scores_of(r);
      const float top = known_top(scores, job.peaks_of(r), job.keys_of(r));
      const float total = known_total(scores, top, job.keys_of(r), job.variants);
      if (lane == 0) job.totals()[r] = total;
    }
  } else {
    const WeightChain weights = {job};
    const float total = run_chain(weights, job, TILE_FULL_SUM, 5 * 32);
    if (lane < job.rows) job.totals()[lane] = total;
  }
  barrier_sync(ALL_TOTALS, 32 * (job.chains() + 1));
}

// Grid (any, heads, any): the dimensions and the rows are dealt out evenly.
template <class Keys>
__device__ __forceinline__ void attend(float* out, const Keys& keys, const float* scratch, int pos,
                                       int count, int wide, int hd, int variants, float* memory) {
  const int heads = gridDim.y, h = blockIdx.y, warp = threadIdx.x / 32;
  const int deal = (count + gridDim.z - 1) / gridDim.z, first_row = blockIdx.z * deal;
  const int every = ((hd + DIMS - 1) / DIMS + gridDim.x - 1) / gridDim.x;
  const int first = blockIdx.x * every * DIMS;
  if (first_row >= count || first >= hd) return;
  const long long row = (long long)first_row * heads + h;
  const Job job = {memory, scratch + row * wide, (long long)heads * wide, pos + first_row + 1,
                   min(deal, count - first_row), min(every, (hd - first + DIMS - 1) / DIMS), first,
                   hd, h / (heads / keys.n_kv), score_room(wide), variants};
  const int maker = maker_of(warp, job.chains());
  if (warp > job.chains() && maker >= 0 && maker < MAKERS) {
    if (keys.by_words()) {
      make_tiles<true>(keys, job, maker / 4, maker % 4);
    } else {
      make_tiles<false>(keys, job, maker / 4, maker % 4);
    }
    return;
  }
  wait_for_previous();
  let_next_start();
  if (warp < job.chains()) {
    add_chain<Keys>(out + row * hd, job, warp, heads);
  } else if (warp == job.chains()) {
    add_weights(job);
  }
}
