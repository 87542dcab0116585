// q4_rows: Q4_0 rows times M float rows, each weight read once. Contract 1.3, 5.
//
// A warp owns whole weight rows. It goes through them in windows of 32 blocks, a lane a block, and takes
// four rows of a window at once, a unit, so that a read of an input serves them all. Each lane asks for
// its own weights one unit ahead, and so waits for nobody; only the inputs are the whole block's, which
// brings those of some windows at once while it works on those before. The sums of a unit stand in the
// warp's shared memory, where a lane goes on with the chain of one row and input. A chain belongs to one
// lane, and which warp makes a sum cannot change it: neither the grid, nor the tile, nor the warps, nor M
// can change a bit.
//
// There is one text of a unit, of a word of its blocks at a time, for any number of rows: instructions
// that no cache holds cost more than those that a short unit leaves out.
#pragma once
#include "async_copy.cuh"
#include "overlap.cuh"
#include "q4_chain.cuh"
#include "q4_sums.cuh"
#include "shares.cuh"

#define MANY_STAGE (MANY_ROWS * MANY_SLAB)  // of a unit; there is room for two of a warp
#define MANY_STRIDE 36  // floats from chain to chain: 16-byte loads of a warp meet no bank twice
#define MANY_FAST (FMA | SPLIT_K | ZERO_POINT)
#define MANY_OTHER -1  // any mask, as it is when the kernel runs

// What the warps of a block share. inputs: two times `stock` windows; eights: with zero_point what is
// taken off the sums of `stock` windows, by block and input; windows: of a row.
struct Q4Many {
  const float* x;
  float *out, *inputs, *eights;
  int rows, nb, stock, count, variants, windows;
  unsigned zero;
};

// Rows of a warp: d, qs of the first of `height`, whose number is `first`. chains: before which row a
// lane has chains, those of input lane % M and of the rows that are lane / M behind a unit's first.
struct Q4Rows {
  const unsigned short* d;
  const unsigned char* qs;
  int first, height, chains;
};

// Where a warp is: the unit that begins with its row `row`, in a window.
struct Q4Unit {
  int row, window;

  __device__ __forceinline__ Q4Unit next(int height) const {
    const bool same = row + MANY_ROWS < height;
    return {same ? row + MANY_ROWS : 0, same ? window : window + 1};
  }

  // Of a lane, counted from the first row's first.
  __device__ __forceinline__ unsigned block(int nb) const {
    return row * nb + min(window * 32 + (int)threadIdx.x % 32, nb - 1);
  }
};

// Asks for the weights of a unit: a group of copies, even where nothing is left.
__device__ __forceinline__ void ask_unit(unsigned char* to, const Q4Many& t, const Q4Rows& own,
                                         const Q4Unit& at) {
  if (at.window < t.windows && at.row < own.height) {
    const unsigned char* from = own.qs + at.block(t.nb) * 16ull;
#pragma unroll
    for (int r = 0; r < MANY_ROWS; ++r) {
      if (at.row + r < own.height) copy_16(to + r * MANY_SLAB, from);
      from += (unsigned)t.nb * 16;
    }
  }
  copy_commit();
}

// The inputs of the windows from `window` on that are brought at once, to the first or second place by
// their number; rows that are not there stay as they are.
template <int M>
__device__ __forceinline__ void many_inputs(const Q4Many& t, int number, int window) {
  float* to = t.inputs + number % 2 * t.stock * 32 * q4_pitch<M>();
  const float* from = t.x + (long long)window * 1024;
  const int width = min(t.stock * 32, t.nb - window * 32);
#pragma unroll 1
  for (int m = 0; m < t.count; ++m, to += 32, from += (long long)t.nb * 32)
#pragma unroll 1
    for (int i = threadIdx.x; i < width * 8; i += blockDim.x)
      copy_16(to + i / 8 * q4_pitch<M>() + i % 8 * 4, from + i * 4);
}

// What zero_point takes off the sums of these windows, once for all weight rows.
template <int M>
__device__ __forceinline__ void many_eights(const Q4Many& t, const float* inputs) {
#pragma unroll 1
  for (int i = threadIdx.x; i < t.stock * 32 * M; i += blockDim.x)
    t.eights[i] = q4_eight_inputs(inputs + i / M * q4_pitch<M>() + i % M * 32);
}

// What a lane's chain came to before a window; kept: a float of each chain of the warp, with split_k
// four.
template <int M>
__device__ __forceinline__ float4 chain_before(const Q4Many& t, const Q4Rows& own, const Q4Unit& at,
                                               const float* kept, int variants) {
  const int chain = at.row * M + threadIdx.x % 32;
  float4 part = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (at.window == 0 || at.row >= own.chains) return part;
  if (variants & SPLIT_K) return ((const float4*)kept)[chain];
  part.x = kept[chain];
  return part;
}

// What it has come to after the window.
template <int M>
__device__ __forceinline__ void keep_chain(const Q4Many& t, const Q4Rows& own, const Q4Unit& at,
                                           const float4& part, float* kept, int variants) {
  if (at.row >= own.chains) return;
  const int lane = threadIdx.x % 32, chain = at.row * M + lane;
  if (variants & SPLIT_K) {
    ((float4*)kept)[chain] = part;
  } else {
    kept[chain] = part.x;
  }
  if (at.window + 1 == t.windows)
    t.out[(long long)(lane % M) * t.rows + own.first + at.row + lane / M] =
        variants & SPLIT_K ? add_four(0.0f, part) : part.x;
}

// The sums of a unit, times their scales unless an fma does that in the chain. x, eights: of the lane's
// block. The exact tier goes on with the chains of the unit before, `last`, between its products: by
// themselves they would be waited for.
template <int M, int FIXED>
__device__ __forceinline__ void many_sums(const Q4Many& t, const Q4Rows& own, const Q4Unit& at,
                                          const Q4Unit& last, const unsigned char* words,
                                          const float* x, const float* eights, float* sums,
                                          float* kept) {
  const int lane = threadIdx.x % 32, height = own.height - at.row;
  const unsigned short* d = own.d + at.block(t.nb);
  unsigned short scale[MANY_ROWS];
#pragma unroll
  for (int r = 0; r < MANY_ROWS; ++r) {
    scale[r] = r < height ? __ldg(d) : 0;
    d += (unsigned)t.nb;
  }
  float s[MANY_ROWS][M];
  if constexpr (FIXED == 0) {
    float acc = chain_before<M>(t, own, last, kept, 0).x;
    q4_many_pairs<M>(s, acc, words, height, x, sums + lane % (MANY_ROWS * M) * MANY_STRIDE, t.zero);
    keep_chain<M>(t, own, last, make_float4(acc, 0.0f, 0.0f, 0.0f), kept, 0);
    __syncwarp();  // all lanes have read: the next sums may come
  } else {
    q4_many_nibbles<M>(s, words, x, eights, t.zero);
  }
  sums += lane;
#pragma unroll
  for (int r = 0; r < MANY_ROWS; ++r) {
    const float by = q4_scale(scale[r]);
    if (FIXED & FMA) sums[(MANY_ROWS * M + r) * MANY_STRIDE] = by;
#pragma unroll
    for (int m = 0; m < M; ++m)
      sums[(r * M + m) * MANY_STRIDE] = FIXED & FMA ? s[r][m] : __fmul_rn(by, s[r][m]);
  }
  if (FIXED == 0 && at.window * 32 + lane >= t.nb)  // to add -0 changes no chain
#pragma unroll 1
    for (int i = 0; i < MANY_ROWS * M; ++i) sums[i * MANY_STRIDE] = -0.0f;
}

// The same for any mask: a short loop.
template <int M>
__device__ __forceinline__ void other_sums(const Q4Many& t, const Q4Rows& own, const Q4Unit& at,
                                           const unsigned char* words, const float* x, float* sums) {
  const unsigned short* d = own.d + at.block(t.nb);
#pragma unroll 1
  for (int i = 0; i < min(MANY_ROWS, own.height - at.row) * M; ++i) {
    const int r = i / M, m = i - r * M;
    const float by = q4_scale(d[r * t.nb]);
    const float s = q4_other_block(words + r * MANY_SLAB, x + m * 32, t.zero, t.variants);
    if (t.variants & FMA) sums[(MANY_ROWS * M + r) * MANY_STRIDE] = by;
    sums[i * MANY_STRIDE] = t.variants & FMA ? s : __fmul_rn(by, s);
  }
}

// The partials of a chain after `width` blocks more: four of split_k, or one.
__device__ __forceinline__ float4 other_chain(float4 part, const float* sums, const float* scales,
                                              int width, int variants) {
#pragma unroll 1
  for (int b = 0; b < width; b += 4) {
    float acc[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (b + i >= width) continue;
      float& to = acc[variants & SPLIT_K ? i : 0];
      to = variants & FMA ? __fmaf_rn(scales[b + i], sums[b + i], to) : __fadd_rn(to, sums[b + i]);
    }
    part = make_float4(acc[0], acc[1], acc[2], acc[3]);
  }
  return part;
}

// The same of a whole window in the fast tier.
__device__ __forceinline__ float4 fast_chain(float4 part, const float* sums, const float* scales) {
#pragma unroll
  for (int b = 0; b < 8; ++b) {
    const float4 d = ((const float4*)scales)[b], v = ((const float4*)sums)[b];
    part = make_float4(__fmaf_rn(d.x, v.x, part.x), __fmaf_rn(d.y, v.y, part.y),
                       __fmaf_rn(d.z, v.z, part.z), __fmaf_rn(d.w, v.w, part.w));
  }
  return part;
}

// Goes on with the chains of a unit over its window, a lane each.
template <int M, int FIXED>
__device__ __forceinline__ void many_chains(const Q4Many& t, const Q4Rows& own, const Q4Unit& at,
                                            const float* sums, float* kept) {
  const int variants = FIXED == MANY_OTHER ? t.variants : FIXED, width = t.nb - at.window * 32;
  const int lane = threadIdx.x % 32 % (MANY_ROWS * M);
  const float* scales = sums + (MANY_ROWS * M + lane / M) * MANY_STRIDE;
  float4 part = chain_before<M>(t, own, at, kept, variants);
  if (FIXED == MANY_FAST && width >= 32) {
    part = fast_chain(part, sums + lane * MANY_STRIDE, scales);
  } else {
    part = other_chain(part, sums + lane * MANY_STRIDE, scales, min(32, width), variants);
  }
  keep_chain<M>(t, own, at, part, kept, variants);
}

// The rows of all warps of one tile. number: of the inputs that have been brought; ring: of the warp.
template <int M, int FIXED>
__device__ __forceinline__ void many_tile(const Q4Many& t, const Q4Rows& own, unsigned char* ring,
                                          float* sums, float* kept, int& number) {
  const int lane = threadIdx.x % 32;
  unsigned char *here = ring + lane * 16, *there = here + MANY_STAGE;
  Q4Unit at = {0, 0}, last = {own.height, 0};  // no unit yet
  ask_unit(here, t, own, at);
  if (number == 0) {
    wait_for_previous();
    let_next_start();
  }
  __syncthreads();  // all have done with the inputs of the tile before
  many_inputs<M>(t, number, 0);
  copy_commit();
#pragma unroll 1
  for (int window = 0; window < t.windows; window += t.stock, ++number) {
    copy_wait<0>();
    __syncthreads();
    if (window + t.stock < t.windows) many_inputs<M>(t, number + 1, window + t.stock);
    const float* inputs = t.inputs + number % 2 * t.stock * 32 * q4_pitch<M>();
    if (FIXED == MANY_FAST) {
      many_eights<M>(t, inputs);
      __syncthreads();
    }
#pragma unroll 1
    while (at.window < min(window + t.stock, t.windows) && at.row < own.height) {
      const int place = (at.window - window) * 32 + lane;
      const float* x = inputs + place * q4_pitch<M>();
      const Q4Unit next = at.next(own.height);
      copy_wait<0>();
      ask_unit(there, t, own, next);
      if constexpr (FIXED == MANY_OTHER) {
        other_sums<M>(t, own, at, here, x, sums + lane);
      } else {
        many_sums<M, FIXED>(t, own, at, last, here, x, t.eights + place * M, sums, kept);
      }
      __syncwarp();
      if (FIXED != 0) {
        many_chains<M, FIXED>(t, own, at, sums, kept);
        __syncwarp();  // all lanes have read: the next sums may come
      }
      unsigned char* const turn = here;
      here = there, there = turn, last = at, at = next;
    }
  }
  if (FIXED == 0) many_chains<M, FIXED>(t, own, last, sums, kept);
  __syncwarp();  // as above
}

// shared: as many_shapes.py sizes it: inputs, with zero_point what is taken off the sums of their
// windows; of each warp the weights of two units, the sums of a unit and with fma their scales, and what
// is kept of the chains of `tile` rows.
template <int M, int FIXED>
__device__ __forceinline__ void q4_rows(float* out, const unsigned short* d,
                                        const unsigned char* qs, const float* x, int variants,
                                        int rows, int nb, int tile, int stock, int count,
                                        char* shared) {
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // 0, in a way that no compiler can see: rows is never negative
  const unsigned zero = (unsigned)(rows + (int)threadIdx.x) >> 31;
  const int first = even_share(rows, blockIdx.x, gridDim.x);
  const int own = even_share(rows, blockIdx.x + 1, gridDim.x) - first;
  float* eights = (float*)shared + 2 * stock * 32 * q4_pitch<M>();
  unsigned char* ring = (unsigned char*)(eights + (variants & ZERO_POINT ? stock * 32 * M : 0));
  const int of_sums = MANY_ROWS * (variants & FMA ? M + 1 : M) * MANY_STRIDE;
  float* sums = (float*)(ring + warps * 2 * MANY_STAGE);
  float* kept = sums + warps * of_sums + warp * tile * M * (variants & SPLIT_K ? 4 : 1);
  const Q4Many t = {x, out, (float*)shared, eights, rows, nb, stock, count, variants, (nb + 31) / 32,
                    zero};
  const int tiles = max(1, (own + tile * warps - 1) / (tile * warps));
  int number = 0;
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    const int at = even_share(own, i, tiles), height = even_share(own, i + 1, tiles) - at;
    const int from = first + at + even_share(height, warp, warps);
    const int to = first + at + even_share(height, warp + 1, warps);
    const int chains = lane < MANY_ROWS * M && lane % M < count ? to - from - lane / M : 0;
    const Q4Rows mine = {d + (long long)from * nb, qs + (long long)from * nb * 16, from, to - from,
                         chains};
    many_tile<M, FIXED>(t, mine, ring + warp * 2 * MANY_STAGE, sums + warp * of_sums, kept, number);
  }
}
