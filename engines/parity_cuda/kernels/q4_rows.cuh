// q4_rows: Q4_0 rows times M float rows, each weight read once. Contract 1.3, 5.
//
// A warp owns whole weight rows. It goes through them in windows of 32 blocks, a lane a block, and takes
// up to four rows of a window at once, so that a read of an input serves them all. Each lane asks for its
// own weights ahead of itself, and so waits for nobody; only the inputs are the whole block's, which
// brings those of some windows at once while it works on those before. The sums of a unit (up to four
// rows, 32 blocks, M inputs) stand in the warp's shared memory, where a lane goes on with the chain of one
// row and input. A chain belongs to one lane, and which warp makes a sum cannot change it: neither the
// grid, nor the tile, nor the warps, nor M can change a bit.
#pragma once
#include "async_copy.cuh"
#include "overlap.cuh"
#include "q4_chain.cuh"
#include "q4_sums.cuh"
#include "shares.cuh"

#define MANY_STAGES 2  // units of a warp on their way or worked on
#define MANY_ROWS 4    // most weight rows of a unit
#define MANY_STAGE_BYTES (MANY_ROWS * 32 * (16 + 4))
#define MANY_STRIDE 36  // floats from chain to chain: 16-byte loads of a warp meet no bank twice

// What all warps of a block share: rows first .. first + own of the outputs; tile: the most rows of a
// warp that are worked on together; inputs: two times `stock` windows; eights: with zero_point of `stock`
// windows, by block and input.
struct Q4Many {
  const unsigned short* d;
  const unsigned char* qs;
  const float* x;
  float *out, *inputs, *eights;
  int rows, nb, first, own, tile, stock, count, variants;
  unsigned magic;

  __device__ __forceinline__ int warps() const { return blockDim.x / 32; }
  __device__ __forceinline__ int windows() const { return (nb + 31) / 32; }
  __device__ __forceinline__ int tiles() const {
    return max(1, (own + tile * warps() - 1) / (tile * warps()));
  }
};

// Where a warp is: rows from .. to of a tile are its own, `row` the first of the unit. THREES: with units
// of three rows, beside those of four and two.
template <bool THREES>
struct Q4Walk {
  int tile, window, from, to, row;

  __device__ __forceinline__ explicit Q4Walk(const Q4Many& t) : tile(0), window(0) { measure(t); }

  __device__ __forceinline__ void measure(const Q4Many& t) {
    const int at = even_share(t.own, tile, t.tiles());
    const int height = even_share(t.own, tile + 1, t.tiles()) - at, warp = threadIdx.x / 32;
    from = t.first + at + even_share(height, warp, t.warps());
    to = t.first + at + even_share(height, warp + 1, t.warps());
    row = from;
  }

  // Rows that the unit is made for, and those that are there.
  __device__ __forceinline__ int height() const {
    const int left = to - row;
    if (left < 3) return 2;
    return THREES && (left == 3 || left == 5) ? 3 : 4;
  }

  __device__ __forceinline__ int present() const { return min(height(), to - row); }
  __device__ __forceinline__ bool there(const Q4Many& t) const { return tile < t.tiles() && row < to; }

  __device__ __forceinline__ void advance(const Q4Many& t) {
    row += height();
    if (row < to) return;
    row = from;
    if (++window < t.windows()) return;
    window = 0;
    if (++tile < t.tiles()) measure(t);
  }
};

// A lane's places in the ring of its warp.
struct Q4Ring {
  unsigned char* begin;
  int ask, here;

  __device__ __forceinline__ explicit Q4Ring(char* shared)
      : begin((unsigned char*)shared + threadIdx.x / 32 * (MANY_STAGES * MANY_STAGE_BYTES)),
        ask(0), here(0) {}
  __device__ __forceinline__ static int next(int at) { return at + 1 == MANY_STAGES ? 0 : at + 1; }
  __device__ __forceinline__ unsigned char* qs(int at) const {
    return begin + at * MANY_STAGE_BYTES + threadIdx.x % 32 * 16;
  }
  __device__ __forceinline__ unsigned char* d(int at) const {
    return begin + at * MANY_STAGE_BYTES + MANY_ROWS * 512 + threadIdx.x % 32 * 4;
  }

  __device__ __forceinline__ void turn() { here = next(here); }

  // A group of copies, even where nothing is left.
  template <bool THREES>
  __device__ __forceinline__ void ask_for(const Q4Many& t, Q4Walk<THREES>& walk) {
    if (walk.there(t)) {
      const int block = min(walk.window * 32 + (int)threadIdx.x % 32, t.nb - 1);
      const long long at = (long long)walk.row * t.nb + block;
      const unsigned char* from = t.qs + at * 16;
      const unsigned short* scales = t.d + at;
      const int present = walk.present();
#pragma unroll
      for (int r = 0; r < MANY_ROWS; ++r) {
        if (r >= present) break;
        copy_16(qs(ask) + r * 512, from);
        copy_half(d(ask) + r * 128, scales);
        from += t.nb * 16, scales += t.nb;
      }
      walk.advance(t);
    }
    copy_commit();
    ask = next(ask);
  }
};

// The inputs of the windows from `window` on that are brought at once, to the first or second place by
// their number; rows that are not there stay as they are.
template <int M>
__device__ __forceinline__ void many_inputs(const Q4Many& t, int number, int window) {
  float* to = t.inputs + number % 2 * t.stock * 32 * q4_pitch<M>();
  const int width = min(t.stock * 32, t.nb - window * 32);
#pragma unroll 1
  for (int m = 0; m < t.count; ++m)
#pragma unroll 1
    for (int i = threadIdx.x; i < width * 8; i += blockDim.x)
      copy_16(to + i / 8 * q4_pitch<M>() + m * 32 + i % 8 * 4,
              t.x + ((long long)m * t.nb + window * 32) * 32 + i * 4);
}

// What zero_point takes off the sums of these windows, once for all weight rows.
template <int M>
__device__ __forceinline__ void many_eights(const Q4Many& t, const float* inputs) {
#pragma unroll 1
  for (int i = threadIdx.x; i < t.stock * 32 * M; i += blockDim.x)
    t.eights[i] = q4_eight_inputs(inputs + i / M * q4_pitch<M>() + i % M * 32);
}

// The sums of R rows of a lane's block, times their scales unless an fma does that in the chain.
template <int R, int M, int FIXED, bool THREES>
__device__ __forceinline__ void many_unit(const Q4Many& t, const Q4Walk<THREES>& at,
                                          const Q4Ring& ring, const float* inputs, float* sums) {
  const int lane = threadIdx.x % 32, block = min(at.window * 32 + lane, t.nb - 1);
  const int place = at.window % t.stock * 32 + lane;
  uint4 qs[R];
  float s[R][M];
#pragma unroll
  for (int r = 0; r < R; ++r) qs[r] = *(const uint4*)(ring.qs(ring.here) + r * 512);
  q4_many_blocks<R, M, FIXED>(s, qs, inputs + place * q4_pitch<M>(), t.eights + place * M, t.magic);
  const unsigned short* d = t.d + (long long)at.row * t.nb + block;
  float* scales = sums + MANY_ROWS * M * MANY_STRIDE;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int half = copied_half(r * 128, d);
    const float scale = q4_scale(*(const unsigned short*)(ring.d(ring.here) + half));
    d += t.nb;
#pragma unroll
    for (int m = 0; m < M; ++m)
      sums[(r * M + m) * MANY_STRIDE + lane] = FIXED & FMA ? s[r][m] : __fmul_rn(scale, s[r][m]);
    if (FIXED & FMA) scales[r * MANY_STRIDE + lane] = scale;
  }
}

// Goes on with the chains of a unit over its window, a lane each; kept: what there is of them, of all
// rows of the warp in this tile: a float each, with split_k four.
template <int M, int FIXED, bool THREES>
__device__ __forceinline__ void many_chains(const Q4Many& t, const Q4Walk<THREES>& at,
                                            const float* sums, float* kept) {
  const int lane = threadIdx.x % 32, r = lane / M, m = lane % M;
  if (r >= at.present() || m >= t.count) return;
  const int width = min(32, t.nb - at.window * 32);
  const float* own = sums + lane * MANY_STRIDE;
  const float* scales = sums + (MANY_ROWS * M + r) * MANY_STRIDE;
  const int chain = (at.row - at.from + r) * M + m;
  float whole = 0.0f;
  if (t.variants & SPLIT_K) {
    float4* place = (float4*)kept + chain;
    const float4 before = at.window > 0 ? *place : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float four[4] = {before.x, before.y, before.z, before.w};
#pragma unroll 4
    for (int b = 0; b < width; b += 4) {
      const float4 v = *(const float4*)(own + b), d = FIXED & FMA ? *(const float4*)(scales + b) : v;
      const float value[4] = {v.x, v.y, v.z, v.w}, scale[4] = {d.x, d.y, d.z, d.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float sum = FIXED & FMA ? __fmaf_rn(scale[i], value[i], four[i])
                                      : __fadd_rn(four[i], value[i]);
        four[i] = b + i < width ? sum : four[i];
      }
    }
    *place = make_float4(four[0], four[1], four[2], four[3]);
    whole = add_four(whole, *place);
  } else {
    if (at.window > 0) whole = kept[chain];
    whole = FIXED & FMA ? chain_dot<FMA>(scales, own, width, whole) : chain_sum(own, width, whole);
    kept[chain] = whole;
  }
  if (at.window + 1 == t.windows()) t.out[(long long)m * t.rows + at.row + r] = whole;
}

// All units of a warp in a tile and the windows before `end`.
template <int M, int FIXED, bool THREES>
__device__ __forceinline__ void many_units(const Q4Many& t, int tile, int end, Q4Walk<THREES>& now,
                                           Q4Walk<THREES>& ahead, Q4Ring& ring,
                                           const float* inputs, float* sums, float* kept) {
#pragma unroll 1
  while (now.there(t) && now.tile == tile && now.window < end) {
    copy_wait<MANY_STAGES - 2>();
    ring.ask_for(t, ahead);
    if (now.height() == 4) {
      many_unit<4, M, FIXED>(t, now, ring, inputs, sums);
    } else if (THREES && now.height() == 3) {
      many_unit<THREES ? 3 : 2, M, FIXED>(t, now, ring, inputs, sums);
    } else {
      many_unit<2, M, FIXED>(t, now, ring, inputs, sums);
    }
    ring.turn();
    __syncwarp();
    many_chains<M, FIXED>(t, now, sums, kept);
    __syncwarp();  // all lanes have read: the next sums may come
    now.advance(t);
  }
}

template <int M, int FIXED>
__device__ __forceinline__ void many_tiles(const Q4Many& t, char* ring_memory, float* sums,
                                           float* kept) {
  constexpr bool THREES = FIXED == 0;
  Q4Walk<THREES> now(t), ahead(t);
  Q4Ring ring(ring_memory);
#pragma unroll 1
  for (int k = 0; k < MANY_STAGES - 1; ++k) ring.ask_for(t, ahead);
  wait_for_previous();
  let_next_start();
  many_inputs<M>(t, 0, 0);
  copy_commit();
  int number = 0;
#pragma unroll 1
  for (int tile = 0; tile < t.tiles(); ++tile)
#pragma unroll 1
    for (int window = 0; window < t.windows(); window += t.stock, ++number) {
      copy_wait<0>();
      __syncthreads();
      const bool more = window + t.stock < t.windows();
      if (more || tile + 1 < t.tiles())
        many_inputs<M>(t, number + 1, more ? window + t.stock : 0);
      const float* inputs = t.inputs + number % 2 * t.stock * 32 * q4_pitch<M>();
      if (FIXED & ZERO_POINT) {
        many_eights<M>(t, inputs);
        __syncthreads();
      }
      many_units<M, FIXED>(t, tile, window + t.stock, now, ahead, ring, inputs, sums, kept);
    }
}

// Out of line: what the variants need must cost the exact tier no register.
template <int M, int FIXED>
__device__ __noinline__ void many_variants(const Q4Many t, char* ring, float* sums, float* kept) {
  many_tiles<M, FIXED>(t, ring, sums, kept);
}

// shared: as many_shapes.py sizes it: inputs, with zero_point what is taken off the sums of a window, the
// rings of all warps, of each warp the sums of a unit and with fma their scales, and what is kept of
// chains.
template <int M>
__device__ __forceinline__ void q4_rows(float* out, const unsigned short* d,
                                        const unsigned char* qs, const float* x, int variants,
                                        int rows, int nb, int tile, int stock, int count,
                                        char* shared) {
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
  // Q4_MAGIC, in a way that no compiler can see: rows is never negative
  const unsigned magic = Q4_MAGIC | (unsigned)rows >> 31;
  const int first = even_share(rows, blockIdx.x, gridDim.x);
  const int own = even_share(rows, blockIdx.x + 1, gridDim.x) - first;
  float* eights = (float*)shared + 2 * stock * 32 * q4_pitch<M>();
  char* rings = (char*)(eights + (variants & ZERO_POINT ? stock * 32 * M : 0));
  const int of_sums = MANY_ROWS * (variants & FMA ? M + 1 : M) * MANY_STRIDE;
  float* sums = (float*)(rings + warps * (MANY_STAGES * MANY_STAGE_BYTES));
  float* kept = sums + warps * of_sums + warp * tile * M * (variants & SPLIT_K ? 4 : 1);
  sums += warp * of_sums;
  const Q4Many t = {d, qs, x, out, (float*)shared, eights, rows, nb, first, own, tile, stock, count,
                    variants, magic};
  if (!(variants & (FMA | UNPAIRED | ZERO_POINT))) {
    many_tiles<M, 0>(t, rings, sums, kept);
  } else if (variants & FMA && variants & ZERO_POINT) {
    many_variants<M, ZERO_POINT | FMA>(t, rings, sums, kept);
  } else if constexpr (M == 8) {  // what is in no tier is compiled once
    if (variants & ZERO_POINT) {
      many_variants<M, ZERO_POINT>(t, rings, sums, kept);
    } else if (!(variants & UNPAIRED)) {
      many_variants<M, FMA>(t, rings, sums, kept);
    } else if (!(variants & FMA)) {
      many_variants<M, UNPAIRED>(t, rings, sums, kept);
    } else {
      many_variants<M, FMA | UNPAIRED>(t, rings, sums, kept);
    }
  }
}
