// attention: what the attention ops of both storages share. Contract 1.8, 5.
// First launch: every score once (attention_scores.cuh). Second: a block for each query head, up to
// eight chains of it, a chain being 32 dimensions of one row. Keys go through the block in tiles.
// Twelve warps make a tile's weights, corrections and values, in groups of four that each have a
// tile of their own at work; a warp a chain adds them up, a lane a dimension, and one more adds up
// l, a lane a row. Only the chains are serial, and each is one thread's: no launch shape can change
// a bit. They wait for nothing but a tile: while one is added the groups make the next three. The
// values of one row are made as products, which its chains only add; several rows share values, and
// their chains multiply. Most threads: 21 warps, for eight chains.
// A Keys type says how K and V are stored.
#pragma once
#include "attention_tiles.cuh"

// ---- weights

// The exponentials of variants, kept out of the way of the exact tier's.
__device__ __noinline__ float other_expf(float x, int variants) { return any_expf(x, variants); }

// Of what is not finite: rare, so that its text stands apart.
__device__ __noinline__ float odd_expf(float x) { return ucrt_expf(x); }

__device__ __forceinline__ float weight_expf(float x, int variants) {
  return variants & (LIBM_EXP | EXP_VIA_DOUBLE) ? other_expf(x, variants) : ucrt_expf(x);
}

struct Weights {
  float p, c;
  bool moved;
};

// The largest score before each lane's key, from the largest before all of the lanes' keys.
__device__ __forceinline__ float before_each(float before, float score) {
  const int lane = threadIdx.x % 32;
  float upto = score;
#pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    const float lower = __shfl_up_sync(0xffffffffu, upto, by);
    if (lane >= by) upto = fmaxf(upto, lower);
  }
  const float lower = __shfl_up_sync(0xffffffffu, upto, 1);
  return lane > 0 ? fmaxf(before, lower) : before;
}

// s: this lane's score, of key t. earlier: the largest score of each of the chunks of 32 keys since
// this warp's last one, a lane each, the same in both halves of the warp; own: that of this chunk.
// best: in lane r the largest score of row r up to this warp's last chunk, without it.
__device__ __forceinline__ Weights online_softmax(float s, float earlier, float own, float& best,
                                                  int r, int t, int keys, int variants) {
#pragma unroll
  for (int by = 8; by > 0; by /= 2)
    earlier = fmaxf(earlier, __shfl_xor_sync(0xffffffffu, earlier, by));
  float before = __shfl_sync(0xffffffffu, best, r);
  const bool first_is_nan = before != before;  // it stays the maximum
  if (!first_is_nan) before = fmaxf(before, earlier);
  if ((int)threadIdx.x % 32 == r) best = before;
  // most chunks have no score above all before them: nothing to look for among their keys
  if (!first_is_nan && own > before) before = before_each(before, s);
  // step 2: running maximum, correction, weight; the first key by definition
  const bool rises = s > before;
  const float top = rises ? s : before;
  // one of the two is expf(0) = 1
  const float e = weight_expf(__fsub_rn(rises ? before : s, top), variants);
  Weights made = {rises ? 1.0f : e, rises ? e : 1.0f, rises};
  // unless the maximum is not finite: inf - inf is a NaN
  if (__fsub_rn(top, top) != 0.0f) {
    const bool other = (variants & (LIBM_EXP | EXP_VIA_DOUBLE)) != 0;
    const float own = __fsub_rn(s, top), past = __fsub_rn(before, top);
    made.p = other ? other_expf(own, variants) : odd_expf(own);
    made.c = other ? other_expf(past, variants) : odd_expf(past);
    made.moved = true;
  }
  if (t == 0) made = {1.0f, 1.0f, false};
  if (t >= keys) made = {-0.0f, 1.0f, false};
  return made;
}

// ---- chains

// The bits of sixteen keys, a lane in eight.
__device__ __forceinline__ unsigned moved_among(const float* row) {
  return ((const unsigned short*)((const KeyRow*)row)->moved)[threadIdx.x % 8];
}

// Sixteen keys of which `left` are there, where a maximum moves. c = 1 multiplies exactly.
__device__ __forceinline__ float careful_sixteen(float acc, const Sixteen& x, const float* correction,
                                                 int left) {
  Sixteen c;
  c.load(correction);
#pragma unroll
  for (int e = 0; e < 16; ++e) {
    const float next = __fadd_rn(__fmul_rn(acc, ((const float*)&c)[e]), ((const float*)&x)[e]);
    acc = e < left ? next : acc;
  }
  return acc;
}

// x of an accumulator's chain of one row: the makers have multiplied. Past the last key x is -0.0,
// which changes no sum. Places are counted in floats from a tile's start.
struct MadeChain {
  typedef Sixteen Ahead;
  static constexpr bool ENDS = false;
  int keys, values, row;

  __device__ MadeChain(const Job& job, int part, int r) {
    keys = job.keys_of(r);
    values = job.values_at(part) + slot(threadIdx.x % 32) * 4;
    row = job.row_at(r);
  }
  // A lane looks at sixteen keys, for no register that all lanes share: the vote comes later.
  __device__ unsigned moved(const float* tile) const { return moved_among(tile + row); }

  __device__ void load(Ahead& to, const float* tile, int piece) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to.four[i] = *(const float4*)(tile + values + (piece * 4 + i) * 4 * DIMS);
  }

  __device__ Sixteen made(const Ahead& from) const { return from; }
};

// The same of several rows, which share values: the factor times v. What only a later row sees may be
// anything: it is left out.
struct ProductChain {
  static constexpr bool ENDS = true;
  struct Ahead {
    Sixteen value, factor;
  };
  MadeChain chain;
  int keys, row;

  __device__ ProductChain(const Job& job, int part, int r)
      : chain(job, part, r), keys(chain.keys), row(chain.row) {}
  __device__ unsigned moved(const float* tile) const { return chain.moved(tile); }

  __device__ void load(Ahead& to, const float* tile, int piece) const {
    chain.load(to.value, tile, piece);
    to.factor.load(((const KeyRow*)(tile + row))->factor + piece * 16);
  }

  __device__ Sixteen made(const Ahead& from) const { return products(from.factor, from.value); }
};

// x of l's chain, a lane a row. Past a row's last key p is -0.0, which changes no sum; pieces in which
// no row has a key are left out.
struct WeightChain {
  typedef Sixteen Ahead;
  static constexpr bool ENDS = false;
  int keys, row, low, high;

  __device__ explicit WeightChain(const Job& job) {
    keys = (job.all_keys() + 15) / 16 * 16;
    const int lane = threadIdx.x % 32;
    row = job.row_at(min(lane, job.rows - 1));
    low = job.row_at(min(lane / 8, job.rows - 1));
    high = job.row_at(min(lane / 8 + 4, job.rows - 1));
  }
  // Eight lanes look at a row, four rows at a time.
  __device__ unsigned moved(const float* tile) const {
    return moved_among(tile + low) | moved_among(tile + high);
  }

  __device__ void load(Ahead& to, const float* tile, int piece) const {
    to.load(((const KeyRow*)(tile + row))->weight + piece * 16);
  }

  __device__ Sixteen made(const Ahead& from) const {
    // step 3: l = l * c + p
    return from;
  }
};

// Goes through all tiles, the last sixteen keys of a tile still to add while the next one's first are
// on their way; products are made before they are needed. A tile in which no maximum moves takes a
// way without a branch.
template <class Chain>
struct Walk {
  const Chain& chain;
  Sixteen x;                      // still to add; -0.0 changes no sum
  typename Chain::Ahead ahead;    // the piece after it, on its way
  float acc;

  __device__ __forceinline__ void nothing_to_add() {
#pragma unroll
    for (int i = 0; i < 4; ++i) x.four[i] = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
  }

  __device__ __forceinline__ void add_plain(const float* tile) {
#pragma unroll
    for (int piece = 1; piece < TILE / 16; ++piece) {
      x = chain.made(ahead);
      chain.load(ahead, tile, piece);
      acc = add_sixteen(acc, x);
    }
    x = chain.made(ahead);
  }

  // moved: each lane has looked at sixteen keys.
  __device__ __forceinline__ void add_careful(const float* tile, unsigned moved, int left) {
    const KeyRow& row = *(const KeyRow*)(tile + chain.row);
    const int last = (min(TILE, max(left, 1)) - 1) / 16;  // piece
    unsigned moves = __ballot_sync(0xffffffffu, moved);  // a bit a piece, of up to four rows
    moves |= moves >> 16;
    moves |= moves >> 8;
#pragma unroll 1
    for (int piece = 0; piece <= last; ++piece, left -= 16) {
      x = chain.made(ahead);
      chain.load(ahead, tile, min(piece + 1, last));
      if (moves >> piece & 1 || (Chain::ENDS && left < 16)) {
        acc = careful_sixteen(acc, x, row.correction + piece * 16, Chain::ENDS ? left : 16);
      } else {
        acc = add_sixteen(acc, x);
      }
    }
    nothing_to_add();
  }
};

template <class Chain>
__device__ __forceinline__ float run_chain(const Chain& chain, const Job& job, int full, int waiting) {
  const int tiles = job.tiles(), emptying = 32 * (job.chains() + !job.known() + 4);
  const int step = job.tile_floats();
  Walk<Chain> walk = {chain};
  walk.acc = 0.0f;
  walk.nothing_to_add();
  const float* tile = job.memory;
  int left = chain.keys, before = 0;
  for (int i = 0, group = 0; i < tiles; ++i, left -= TILE) {
    barrier_sync(full + group, waiting);
    const unsigned moved = chain.moved(tile);
    chain.load(walk.ahead, tile, 0);
    walk.acc = add_sixteen(walk.acc, walk.x);
    if (i > 0 && i - 1 + TILE_GROUPS < tiles) barrier_arrive(TILE_EMPTY + before, emptying);
    if (left >= TILE && !__any_sync(0xffffffffu, moved)) {
      walk.add_plain(tile);
    } else {
      walk.add_careful(tile, moved, left);
    }
    before = group;
    group = group + 1 < TILE_GROUPS ? group + 1 : 0;
    tile += group ? step : -(TILE_GROUPS - 1) * step;
  }
  return add_sixteen(walk.acc, walk.x);
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
__device__ __forceinline__ Weights known_softmax(float s, float best, int r, int t, int keys,
                                                 int variants) {
  // step 2: maximum, any order, then weights
  const float top = __shfl_sync(0xffffffffu, best, r);
  Weights made = {-0.0f, 1.0f, false};
  if (t < keys) made.p = weight_expf(__fsub_rn(s, top), variants);
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
#pragma unroll 1
  for (int r = 0; r < job.rows; ++r) {
    const float top = known_top(job.scores_of(r), job.peaks_of(r), job.keys_of(r));
    if ((int)threadIdx.x % 32 == r) best = top;
  }
  return best;
}

// ---- makers

__device__ __forceinline__ void store_weights(KeyRow& to, const Weights& made, float scale, int warp) {
  const int key = warp * 32 + threadIdx.x % 32;
  to.weight[key] = made.p;
  to.correction[key] = made.c;
  to.factor[key] = __fmul_rn(made.p, scale);
  const unsigned bits = __ballot_sync(0xffffffffu, made.moved);
  if (threadIdx.x % 32 == 0) to.moved[warp] = bits;
}

// Weights and corrections of a warp's 32 keys, for every row. As soon as all lanes have read what they
// need, the same of the next tile is asked for, where there are `more`.
template <class Keys>
__device__ __forceinline__ void make_weights(const Inbox<Keys>& inbox, const Job& job,
                                             const Keys& keys, float& best, int tile, int group,
                                             int warp, bool more) {
  const int lane = threadIdx.x % 32, t = tile * TILE + warp * 32 + lane;
  const int emptied = 32 * (job.chains() + !job.known() + 4);
#pragma unroll 1
  for (int r = 0; r < job.rows; ++r) {
    const float s = inbox.scores(r)[lane], own = inbox.peaks(r)[31];
    const bool counts = lane % 16 < chunks_since(tile, warp);
    const float earlier = counts ? inbox.peaks(r)[lane % 16] : NO_SCORE;
    const int seen = job.keys_of(r);
    // past the last key the factor is -0.0
    const float scale = Keys::scaled() && t < seen ? inbox.scales()[lane] : 1.0f;
    __syncwarp();
    if (more) {
      ask_scores(inbox, job, tile + TILE_GROUPS, warp, r);
      if (r + 1 == job.rows) ask_scales(inbox, job, keys, tile + TILE_GROUPS, warp);
    }
    const Weights weights = job.known()
                                ? known_softmax(s, best, r, t, seen, job.variants)
                                : online_softmax(s, earlier, own, best, r, t, seen, job.variants);
    if (r == 0 && tile >= TILE_GROUPS) barrier_sync(TILE_EMPTY + group, emptied);
    store_weights(job.row(group, r), weights, scale, warp);
  }
}

// Every third tile, 32 keys of it. What the launch of the scores did not write is asked for before it
// has ended: whatever came before that launch had ended when it started.
template <bool WORDS, class Keys>
__device__ __forceinline__ void make_tiles(const Keys& keys, const Job& job, int group, int warp) {
  const int tiles = job.tiles(), lane = threadIdx.x % 32, made = 32 * (job.chains() + 4);
  const Inbox<Keys> inbox(job, group * 4 + warp);
  if (group < tiles) ask_values<WORDS>(inbox, job, keys, group, warp);
  wait_for_previous();
  let_next_start();
  if (group >= tiles) return;
#pragma unroll 1
  for (int r = 0; r < job.rows; ++r) ask_scores(inbox, job, group, warp, r);
  ask_scales(inbox, job, keys, group, warp);
  // online_softmax starts from a first score that is a NaN, else from nothing
  float best = job.scores_of(min(lane, job.rows - 1))[0];
  if (best == best) best = NO_SCORE;
  if (job.known()) best = known_tops(job);
  copy_wait<0>();
  __syncwarp();
  for (int i = group; i < tiles; i += TILE_GROUPS) {
    const bool more = i + TILE_GROUPS < tiles;
    make_weights(inbox, job, keys, best, i, group, warp, more);
    // values were asked for before these scores: all groups but the last are there
    if (more) copy_wait<1>();
    if (!more) copy_wait<0>();
    __syncwarp();
    const float* factor = job.multiplied() ? job.row(group, 0).factor + warp * 32 : nullptr;
#pragma unroll 1
    for (int part = 0; part < job.parts; ++part)
      store_values(job.values(group, part), inbox.values(part), factor, keys, warp);
    barrier_arrive(TILE_FULL + group, made);
    if (!job.known()) barrier_arrive(TILE_FULL_SUM + group, 5 * 32);
    if (!more) return;
    __syncwarp();  // all lanes have read: the next values may come
    ask_values<WORDS>(inbox, job, keys, i + TILE_GROUPS, warp);
    copy_wait<1>();
    __syncwarp();
  }
}

// ---- roles

// In a launch with at most `most` chains a block: 0 .. most - 1 a chain, most l, then those that make
// tiles; -1 nothing. Few chains have, with l's, a scheduler to themselves: it takes every fourth warp.
__device__ __forceinline__ int role_of(int warp, int most) {
  if (most > APART) return warp;
  if (warp % 4) return most + warp - warp / 4;
  return warp / 4 <= most ? warp / 4 : -1;
}

__device__ __forceinline__ void add_chain(float* out, const Job& job, int chain, int heads) {
  const int lane = threadIdx.x % 32, part = chain % job.parts, r = chain / job.parts;
  const int waiting = 32 * (job.chains() + 4);
  float acc;
  if (job.multiplied()) {
    const MadeChain products(job, part, r);
    acc = run_chain(products, job, TILE_FULL, waiting);
  } else {
    const ProductChain products(job, part, r);
    acc = run_chain(products, job, TILE_FULL, waiting);
  }
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
    const WeightChain weights(job);
    const float total = run_chain(weights, job, TILE_FULL_SUM, 5 * 32);
    if (lane < job.rows) job.totals()[lane] = total;
  }
  barrier_sync(ALL_TOTALS, 32 * (job.chains() + 1));
}

template <bool WORDS, class Keys>
__device__ __forceinline__ void play(float* out, const Keys& keys, const Job& job, int heads,
                                     int most) {
  const int role = role_of(threadIdx.x / 32, most), maker = role - most - 1;
  if (maker >= 0 && maker < MAKERS) {
    make_tiles<WORDS>(keys, job, maker / 4, maker % 4);
    return;
  }
  wait_for_previous();
  let_next_start();
  if (role >= 0 && role < job.chains()) {
    add_chain(out, job, role, heads);
  } else if (role == most) {
    add_weights(job);
  }
}

// Grid (any, heads, any): the dimensions and the rows are dealt out evenly.
template <class Keys>
__device__ __forceinline__ void attend(float* out, const Keys& keys, const float* scratch, int pos,
                                       int count, int wide, int hd, int variants, float* memory) {
  const int heads = gridDim.y, h = blockIdx.y;
  const int deal = (count + gridDim.z - 1) / gridDim.z, first_row = blockIdx.z * deal;
  const int every = ((hd + DIMS - 1) / DIMS + gridDim.x - 1) / gridDim.x;
  const int first = blockIdx.x * every * DIMS;
  if (first_row >= count || first >= hd) return;
  const long long row = (long long)first_row * heads + h;
  const int rows = min(deal, count - first_row);
  const int parts = min(every, (hd - first + DIMS - 1) / DIMS);
  Job job = {memory, scratch + row * wide, (long long)heads * wide, pos + first_row + 1, rows, parts,
             first, hd, h / (heads / keys.n_kv), score_room(wide), variants};
  out += row * hd;
  if (!keys.by_words()) {
    play<false>(out, keys, job, heads, deal * every);
  } else if (deal != 1 || every != Keys::PARTS || parts != Keys::PARTS) {
    play<true>(out, keys, job, heads, deal * every);
  } else {  // compiled for it
    job.rows = 1, job.parts = Keys::PARTS;
    play<true>(out, keys, job, heads, Keys::PARTS);
  }
}
