// q4_row: rows of Q4_0 matrices times one float row, its inputs in registers. Contract 1.3, 5.
//
// The warps of a block of threads stand in sides. A side owns whole weight rows and shares nothing with
// the others but the inputs: it waits for its own warps alone, for nobody where it is one warp. A warp
// of it holds 32 blocks of inputs, a lane one, and goes through rows four at a time, so that four chains
// of additions are in flight. What is shared out among the warps of a side are its rows times its groups
// of 32 blocks, group by group: whatever their numbers, each warp has the same number of pairs of rows
// within one, and seldom takes other inputs. It leaves the sum of each block in shared memory, where one
// lane a row runs the chain over blocks. Which warp makes a sum cannot change it, and a chain belongs to
// one lane: neither the grid, nor the tile, nor the sides can change a bit.
//
// A weight costs one instruction before its product. Four bits cut out of a word at bit p are, as they
// stand, the float n * 2^(p - 149): a subnormal, or for p = 20 and n > 7 the normal number of the same
// formula. So (n - 8) * x is one fma of that float, x * 2^(149 - p) and -8 * x, rounded once as the
// contract's product is. 2^149 is too much for a float: all of it is done 2^-40 smaller, which is exact
// as long as every input is 0 or between LEAST and MOST, since then no product is subnormal, and a sum
// that is, is exact. Blocks with any other input (NaN too) go through row_any_block instead.
//
// That holds for chains of fma, and for zero_point, too. Every input is a multiple of 2^-109, the last
// bit of LEAST = 2^-86; so is every n * x, and every sum of them, be it rounded: to a multiple of its own
// last bit, or, where that lies below 2^-109, not at all. Times 2^-40 they are multiples of 2^-149, which
// all floats hold that are subnormal: where the smaller sum is one, neither it nor the larger one, a
// multiple of 2^-109 below 2^-86, is rounded; elsewhere both have 24 bits and are rounded alike. X, the
// sum of inputs, is made times -8 * 2^-40: a multiple of 2^-146. Nothing is too large either: 32 * 15 *
// MOST is 2^35, and MOST times 2^101 is a float.
#pragma once
#include "q4.cuh"
#include "q4_chain.cuh"
#include "row_input.cuh"
#include "row_plan.cuh"

#define ROW_RING 2  // least steps of a warp that there is room for, of which one is multiplied
#define ROW_STEP 4  // rows that are multiplied at once
#define ROW_SLAB 512  // bytes of the weights of 32 blocks of a row
#define ROW_BYTES (ROW_STEP * (ROW_SLAB + 64))  // of a step: the weights of its rows, then their scales

// The inputs of a lane: times 2^(149 - p - 40), where p is the bit that their weight stands at, and
// times -8 * 2^-40; with zero_point the ascending sum of the latter. The bytes of a word stand at 8 and
// 16: as they are, or the outer ones brought there.
template <int FIXED>
struct RowInputs {
  float scaled[32], eight[FIXED & ZERO_POINT ? 1 : 32];

  __device__ __forceinline__ float minus8(int j) const { return eight[FIXED & ZERO_POINT ? 0 : j]; }

  // x: 32 floats at a multiple of 16 bytes.
  __device__ __forceinline__ void take(const float* x) {
    float sum = -0.0f;
#pragma unroll
    for (int j = 0; j < 32; j += 4) {
      const float4 four = *(const float4*)(x + j);
      const float v[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float low = i < 2 ? 2.535301200456459e30f : 9.903520314283042e27f;  // 2^101, 2^93
        scaled[j + i] = __fmul_rn(v[i], j < 16 ? low : low / 16.0f);
        const float less = __fmul_rn(v[i], -7.275957614183426e-12f);  // -2^-37
        sum = __fadd_rn(sum, less);
        if (!(FIXED & ZERO_POINT)) eight[(j + i) % (FIXED & ZERO_POINT ? 1 : 32)] = less;
      }
    }
    if (FIXED & ZERO_POINT) eight[0] = sum;
  }
};

// The sums of contract 1.3 of a block in each of R rows, times 2^-40. The first addition, to +0, is left
// out: that a zero may have another sign then is not seen in any acc + d * s. An fma adds to +0 all the
// same: there it is seen where acc is a -0 that a sum vanished to.
template <int FIXED, int R>
__device__ __forceinline__ void row_block(float (&sums)[R], const uint4 (&qs)[R],
                                          const RowInputs<FIXED>& x) {
  constexpr bool SINGLES = (FIXED & (UNPAIRED | ZERO_POINT)) != 0, FUSED = (FIXED & FMA) != 0;
#pragma unroll
  for (int pass = 0; pass < (SINGLES ? 2 : 1); ++pass)
#pragma unroll
    for (int e = 0; e < 16; ++e)
#pragma unroll
      for (int r = 0; r < R; ++r) {
        float& s = sums[r];
        const bool begins = pass == 0 && e == 0;
        const unsigned word[4] = {qs[r].x, qs[r].y, qs[r].z, qs[r].w};
        const int i = e % 4, p = i < 2 ? 8 : 16;
        const unsigned from = i % 3 == 0 ? __byte_perm(word[e / 4], 0, 0x4304) : word[e / 4];
        const float low = __uint_as_float(from & 0xfu << p);
        const float high = __uint_as_float(from & 0xf0u << p);
        // the floats of 8 at the same bits
        const float eight = __uint_as_float(8u << p), eight_high = __uint_as_float(0x80u << p);
        if (SINGLES) {
          const int j = e + 16 * pass;
          const float n = pass ? high : low, v = x.scaled[j];
          const float w = FIXED & ZERO_POINT ? n : __fsub_rn(n, pass ? eight_high : eight);
          if (FUSED) {
            s = __fmaf_rn(w, v, begins ? 0.0f : s);
          } else {
            const float made = FIXED & ZERO_POINT ? __fmul_rn(w, v) : __fmaf_rn(n, v, x.minus8(j));
            s = begins ? made : __fadd_rn(s, made);
          }
          continue;
        }
        const float second = __fmaf_rn(high, x.scaled[e + 16], x.minus8(e + 16));
        const float made = FUSED ? __fmaf_rn(__fsub_rn(low, eight), x.scaled[e], second)
                                 : __fadd_rn(__fmaf_rn(low, x.scaled[e], x.minus8(e)), second);
        s = begins ? made : __fadd_rn(s, made);
      }
  if (FIXED & ZERO_POINT)
#pragma unroll
    for (int r = 0; r < R; ++r) sums[r] = __fadd_rn(sums[r], x.minus8(0));
}

// A lane's weights on their way to shared memory: a ring of p.ring steps, one of which is multiplied.
// They are no registers, since the compiler waits for all loads into registers at the head of a loop, the
// latest too. A step is ROW_STEP rows of one piece, or what is left of it. The scales of a step are one
// copy, four of them a lane, where all rows have them at multiples of 8 bytes: lanes read what others have
// copied.
template <int N>
struct RowLoads {
  const RowPlan<N>& p;
  RowWalk<N> walk;
  int own, left, usual;  // own: the warp's place in its side; usual: least rows left of the usual ask
  const unsigned char* qs;
  const unsigned short* d;

  __device__ __forceinline__ RowLoads(const RowPlan<N>& plan, int place)
      : p(plan), own(place), left(0), usual(0x7fffffff), qs(plan.matrix[0].qs), d(plan.matrix[0].d) {
    walk.begin(p, own, p.from);
  }

  // The next piece, if there is one.
  __device__ __forceinline__ void advance() {
    while (walk.left == 0 && walk.first < p.to) walk.begin(p, own, walk.first + p.tile);
    if (walk.left == 0) return;
    const int from = walk.group * 32, width = p.nb - from, lane = threadIdx.x % 32;
    int row;
    const RowMatrix found = walk.next(p, row, left);
    const long long block = (long long)row * p.nb + from;
    qs = found.qs + (block + min(lane, width - 1)) * 16;
    d = found.d + block;
    const bool words = p.nb % 4 == 0 && (size_t)found.d % 8 == 0;
    usual = words ? ROW_STEP : 0x7fffffff;
    d += words ? lane / 8 * p.nb + min(lane % 8 * 4, (width - 1) / 4 * 4) : min(lane, width - 1);
  }

  // What ask does for a step that begins a piece, ends one, or has scales not at whole words.
  __device__ __forceinline__ void ask_other(unsigned char* to) {
    if (left <= 0) advance();
    if (left <= 0) return;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < ROW_STEP; ++r)
      if (left > r) copy_16(to + r * ROW_SLAB + lane * 16, qs + (long long)r * p.nb * 16);
    if (usual == ROW_STEP) {
      if (lane / 8 < left) copy_8(to + ROW_STEP * ROW_SLAB + lane * 8, d);
      return;
    }
    unsigned short* scale = (unsigned short*)(to + ROW_STEP * ROW_SLAB) + lane;
#pragma unroll 1
    for (int r = 0; r < min(ROW_STEP, left); ++r) scale[32 * r] = d[r * p.nb];
  }

  // Asks for a step to a place in the ring: a group of copies, even where nothing is left. USUAL: it is
  // known to be a whole step of this piece.
  template <bool USUAL>
  __device__ __forceinline__ void ask(unsigned char* to) {
    if (USUAL || left >= usual) {
      const int lane = threadIdx.x % 32;
      const unsigned char* from = qs;
#pragma unroll
      for (int r = 0; r < ROW_STEP; ++r) {
        copy_16(to + r * ROW_SLAB + lane * 16, from);
        from += p.nb * 16;
      }
      copy_8(to + ROW_STEP * ROW_SLAB + lane * 8, d);
      qs = from;
    } else {
      ask_other(to);
      qs += p.nb * 16 * ROW_STEP;
    }
    copy_commit();
    d += p.nb * ROW_STEP;
    left -= ROW_STEP;
  }
};

// The places in the ring of a warp: the one that is multiplied next, the one that has been multiplied, and
// the end of all.
struct RowRing {
  unsigned char *here, *last, *end;
  int all;  // bytes

  __device__ __forceinline__ RowRing(float* shared, int places) : all(places * ROW_BYTES) {
    here = (unsigned char*)shared + threadIdx.x / 32 * all;
    end = here + all, last = end - ROW_BYTES;
  }

  __device__ __forceinline__ void turn() {
    last = here;
    here += ROW_BYTES;
    if (here == end) here -= all;
  }
};

// The end of 32 rows of the tile at `first`, or those that are left, a lane each: those from `from` on,
// with pairs half of them of each matrix. All lanes of the warp must call it. sums, scales: of the tile.
template <int N, int FIXED>
__device__ __forceinline__ void row_finish(const RowPlan<N>& p, int first, int from, float* sums,
                                           const unsigned short* scales, int variants) {
  const int lane = threadIdx.x % 32, height = p.height(first), half = height / 2;
  const int pair = from / 2 + lane % 16;  // with pairs: of the tile's
  const int j = !p.pairs ? from + lane : lane < 16 ? pair : pair + half;
  float acc = 0.0f;
  int row = first + j, unused;
  const bool there = p.pairs ? pair < half : j < height;
  if (there) {
    const RowMatrix found = p.find(first, row, unused);
    const float base = p.end.total ? p.end.base[row] : 0.0f;  // on its way while the chain runs
    acc = q4_whole_chain<FIXED>(sums + j * q4_chain_stride(p.nb), scales + j * q4_scale_stride(p.nb),
                                p.nb, variants);
    found.out[row] = acc;
    if (p.end.total) p.end.total[row] = __fadd_rn(base, acc);
  }
  if (!p.end.act) return;
  const float up = __shfl_down_sync(0xffffffffu, acc, 16);
  if (there && lane < 16) p.end.act[row] = __fmul_rn(any_silu(acc, variants), up);
}

// What the sums of a piece are made with. inputs: of the lane's block, in shared memory; sums: of its
// first row, with fma the scales too; `step` and `scale_step` from row to row.
struct RowPiece {
  const float* inputs;
  float* sums;
  unsigned short* scales;
  int step, scale_step;
};

// The sum of contract 1.3 of a block of any inputs, by a short loop. x: in shared memory, as qs is.
template <int FIXED>
__device__ __forceinline__ float row_any_block(const unsigned char* qs, const float* x) {
  constexpr bool SINGLES = q4_one_by_one(FIXED);
  const float eight = FIXED & ZERO_POINT ? 0.0f : 8.0f;
  float s = 0.0f;
#pragma unroll 1
  for (int j = 0; j < (SINGLES ? 32 : 16); ++j) {
    const int byte = qs[j % 16], low = byte & 15, high = byte >> 4;
    if (SINGLES) {
      s = product_sum(__fsub_rn((float)(j < 16 ? low : high), eight), x[j], s, FIXED);
    } else {
      const float second = __fmul_rn(__fsub_rn((float)high, eight), x[j + 16]);
      s = __fadd_rn(s, product_sum(__fsub_rn((float)low, eight), x[j], second, FIXED));
    }
  }
  return FIXED & ZERO_POINT ? __fsub_rn(s, q4_eight_inputs(x)) : s;
}

// The sums of R rows of a step of `rows`, from row `first`; for one that is not there the last again.
template <int FIXED, int R>
__device__ __forceinline__ void row_rows(const unsigned char* here, const RowInputs<FIXED>& x,
                                         const RowPiece& piece, int first, int rows) {
  const int lane = threadIdx.x % 32;
  uint4 qs[R];
  float s[R];
  int row[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    row[r] = R < ROW_STEP ? min(first + r, rows - 1) : r;
    qs[r] = *(const uint4*)(here + row[r] * ROW_SLAB + lane * 16);
  }
  row_block<FIXED>(s, qs, x);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    s[r] = __fmul_rn(s[r], 1.099511627776e12f);  // 2^40
    const unsigned short scale =
        *(const unsigned short*)(here + ROW_STEP * ROW_SLAB + row[r] * 64 + lane * 2);
    piece.sums[row[r] * piece.step] = FIXED & FMA ? s[r] : __fmul_rn(q4_scale(scale), s[r]);
    if (FIXED & FMA) piece.scales[row[r] * piece.scale_step] = scale;
  }
}

// The same of one row and of any inputs.
template <int FIXED>
__device__ __forceinline__ void row_any(const unsigned char* here, const RowPiece& piece, int row) {
  const int lane = threadIdx.x % 32;
  const float s = row_any_block<FIXED>(here + row * ROW_SLAB + lane * 16, piece.inputs);
  const unsigned short scale =
      *(const unsigned short*)(here + ROW_STEP * ROW_SLAB + row * 64 + lane * 2);
  piece.sums[row * piece.step] = FIXED & FMA ? s : __fmul_rn(q4_scale(scale), s);
  if (FIXED & FMA) piece.scales[row * piece.scale_step] = scale;
}

// A step of the ring, of which `rows` are left in the piece. plain: the scaling is not exact for all
// inputs. A step that is not whole goes by two rows: code that no cache holds costs more than it saves.
template <int N, int FIXED, bool USUAL>
__device__ __forceinline__ void row_step(RowLoads<N>& loads, RowRing& ring, const RowInputs<FIXED>& x,
                                         RowPiece& piece, int rows, bool plain) {
  copy_wait<0>();
  __syncwarp();
  const unsigned char* here = ring.here;
  loads.template ask<USUAL>(ring.last);
  ring.turn();
  if (USUAL) {
    row_rows<FIXED, ROW_STEP>(here, x, piece, 0, ROW_STEP);
  } else {
    const int there = min(rows, ROW_STEP);
#pragma unroll 1
    for (int r = 0; r < there; r += plain ? 1 : 2) {
      if (plain) {
        row_any<FIXED>(here, piece, r);
      } else {
        row_rows<FIXED, 2>(here, x, piece, r, there);
      }
    }
  }
  piece.sums += ROW_STEP * piece.step;
  if (FIXED & FMA) piece.scales += ROW_STEP * piece.scale_step;
}

// The sums of a lane in one piece of `count` rows. FEW: there is no code for whole steps.
template <int N, int FIXED, bool FEW>
__device__ __forceinline__ void row_sums(RowLoads<N>& loads, RowRing& ring, const RowInputs<FIXED>& x,
                                         RowPiece piece, int count, bool plain) {
  if (!FEW && !plain && loads.usual == ROW_STEP)
#pragma unroll 1
    for (; min(count, loads.left) >= ROW_STEP; count -= ROW_STEP)
      row_step<N, FIXED, true>(loads, ring, x, piece, ROW_STEP, false);
#pragma unroll 1
  for (; count > 0; count -= ROW_STEP)
    row_step<N, FIXED, false>(loads, ring, x, piece, count, plain);
}

// What a warp works with. shared: the block's memory, where the rings of all warps, the inputs, the sums
// of all sides and with fma as many scales stand in this order.
template <int N>
struct RowWork {
  const RowPlan<N>& p;
  RowLoads<N> loads;
  RowRing ring;
  float *inputs, *all_sums, *sums;
  unsigned short* scales;
  int side, own, stride;

  __device__ __forceinline__ RowWork(const RowPlan<N>& plan, float* shared)
      : p(plan), loads(plan, threadIdx.x / 32 % plan.across), ring(shared, plan.ring) {
    const int warps = blockDim.x / 32;
    side = threadIdx.x / 32 / p.across, own = loads.own, stride = q4_chain_stride(p.nb);
    inputs = shared + warps * p.ring * (ROW_BYTES / 4);
    all_sums = inputs + p.nb * ROW_PAD;
    sums = all_sums + side * p.kept * stride;
    scales = (unsigned short*)(all_sums + warps / p.across * p.kept * stride) +
             side * p.kept * q4_scale_stride(p.nb);
  }

  // Where the norm's weights stand: behind what its root is made of.
  __device__ __forceinline__ float* weights(int variants) const {
    return all_sums + (variants & NORM_TREE ? power_of_two(p.nb * 32) : p.nb * 4 + 4);
  }

  // Asks for the first weights.
  __device__ __forceinline__ void ask() {
#pragma unroll 1
    for (unsigned char* to = ring.here; to != ring.last; to += ROW_BYTES) loads.template ask<false>(to);
  }
};

// All tiles of a side, once the inputs are there. unfit: groups of blocks that the scaling is not exact
// for. Lanes without a block write behind the row's sums.
template <int N, int FIXED, bool FEW>
__device__ __forceinline__ void row_tiles(RowWork<N>& work, const unsigned* unfit, int variants) {
  const RowPlan<N>& p = work.p;
  const int lane = threadIdx.x % 32, own = work.own, tiles = p.kept / p.tile;
  const int stride = work.stride, scale_stride = q4_scale_stride(p.nb);
  RowInputs<FIXED> x;
  RowWalk<N> walk;
  int count = 0, taken = -1;  // taken: the group whose inputs x has
  for (int first = p.from; first < p.to; first += p.tile, ++count) {
    const int part = count % tiles * p.tile, height = p.height(first);
    float* sums = work.sums + part * stride;
    unsigned short* scales = work.scales + part * scale_stride;
    walk.begin(p, own, first);
    while (walk.left > 0) {
      const int group = walk.group, block = min(group * 32 + lane, p.nb - 1);
      const int at = walk.at, to = group * 32 + lane;
      const float* mine = work.inputs + block * ROW_PAD;
      if (group != taken) x.take(mine);
      taken = group;
      int row, rows;
      walk.next(p, row, rows);
      const RowPiece piece = {mine, sums + at * stride + to, scales + at * scale_stride + to, stride,
                              scale_stride};
      row_sums<N, FIXED, FEW>(work.loads, work.ring, x, piece, rows, unfit[row_flag(group)] != 0);
    }
    row_side_sync(work.side, p.across);
    // The others go on with the next tile, and the warps that run chains are others each time.
    for (int begin = 0; begin < height; begin += 32)
      if (own == (count + begin / 32) % p.across)
        row_finish<N, FIXED>(p, first, begin, sums, scales, variants);
    if (p.across == 1) __syncwarp();  // it has room for one tile
  }
  copy_wait<0>();
}

// The same with the inputs brought first, normed or not; from: the row.
template <int N, int FIXED, bool FEW>
__device__ __forceinline__ void row_normed(const RowPlan<N>& p, const float* from, const RowNorm& norm,
                                           float* shared, int variants) {
  __shared__ unsigned shared_unfit[ROW_FLAGS];
  RowWork<N> work(p, shared);
  const int units = p.nb * 4;
  float* const part = work.all_sums;  // nothing is summed before it is used up
  const RowInput input = {work.inputs, part, work.weights(variants), shared_unfit, units};
  if (norm.on) input.ask_weights(norm);
  work.ask();  // before the launch ahead has ended
  if (threadIdx.x < ROW_FLAGS) shared_unfit[threadIdx.x] = 0;
  __syncthreads();
  input.bring(from, norm, variants, [] { copy_wait<0>(); });
  __syncthreads();
  row_tiles<N, FIXED, FEW>(work, shared_unfit, variants);
}

template <int N, int FIXED>
__device__ __forceinline__ void row_plain(const RowPlan<N>& p, const float* from, float* shared,
                                          int variants) {
  const RowNorm none = {nullptr, nullptr, 0.0f, false};
  row_normed<N, FIXED, false>(p, from, none, shared, variants);
}
