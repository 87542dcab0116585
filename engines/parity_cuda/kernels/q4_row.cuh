// q4_row: rows of Q4_0 matrices times one float row, its inputs in registers. Contract 1.3, 5.
//
// The warps of a block of threads stand in sides. A side owns whole weight rows and shares nothing with
// the others but the inputs: it waits for its own warps alone, for nobody where it is one warp. A warp
// of it holds 32 blocks of inputs, a lane one, and goes through the rows two at a time, so that two
// chains of additions are in flight; where a row has more blocks than the side has lanes, it goes
// through the tile again with the next ones. It leaves the sum of each block in shared memory, where one
// lane a row runs the chain over blocks. Which warp makes a sum cannot change it, and a chain belongs to
// one lane: neither the grid, nor the tile, nor the sides can change a bit.
//
// A weight costs one instruction before its product. Four bits cut out of a word at bit p are, as they
// stand, the float n * 2^(p - 149): a subnormal, or for p = 20 and n > 7 the normal number of the same
// formula. So (n - 8) * x is one fma of that float, x * 2^(149 - p) and -8 * x, rounded once as the
// contract's product is. 2^149 is too much for a float: all of it is done 2^-40 smaller, which is exact
// as long as every input is 0 or between LEAST and MOST, since then no product is subnormal, and a sum
// that is, is exact. Blocks with any other input (NaN too) go through q4_blocks instead.
#pragma once
#include "barriers.cuh"
#include "q4.cuh"
#include "q4_chain.cuh"
#include "row_input.cuh"

#define ROW_RING 4  // pairs of weight rows of a warp, of which one is multiplied
#define ROW_BYTES (2 * 32 * (16 + 4))  // of a pair: 32 blocks a row, each with a word for its scale
#define ROW_RING_BYTES (ROW_RING * ROW_BYTES)

// The inputs of a lane: times 2^(149 - p - 40), where p is the bit that their weight stands at, and
// times -8 * 2^-40. The bytes of a word stand at 8 and 16: as they are, or the outer ones brought there.
struct RowInputs {
  float scaled[32], eight[32];

  // x: 32 floats at a multiple of 16 bytes.
  __device__ __forceinline__ void take(const float* x) {
#pragma unroll
    for (int j = 0; j < 32; j += 4) {
      const float4 four = *(const float4*)(x + j);
      const float v[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float low = i < 2 ? 2.535301200456459e30f : 9.903520314283042e27f;  // 2^101, 2^93
        scaled[j + i] = __fmul_rn(v[i], j < 16 ? low : low / 16.0f);
        eight[j + i] = __fmul_rn(v[i], -7.275957614183426e-12f);  // -2^-37
      }
    }
  }
};

// The sums of contract 1.3 of a block in each of R rows, times 2^-40.
template <int FIXED, int R>
__device__ __forceinline__ void row_block(float (&sums)[R], const uint4 (&qs)[R],
                                          const RowInputs& x) {
#pragma unroll
  for (int r = 0; r < R; ++r) sums[r] = 0.0f;
#pragma unroll
  for (int pass = 0; pass < (FIXED & UNPAIRED ? 2 : 1); ++pass)
#pragma unroll
    for (int e = 0; e < 16; ++e)
#pragma unroll
      for (int r = 0; r < R; ++r) {
        float& s = sums[r];
        const unsigned word[4] = {qs[r].x, qs[r].y, qs[r].z, qs[r].w};
        const int i = e % 4, p = i < 2 ? 8 : 16;
        const unsigned from = i % 3 == 0 ? __byte_perm(word[e / 4], 0, 0x4304) : word[e / 4];
        const float low = __uint_as_float(from & 0xfu << p);
        const float high = __uint_as_float(from & 0xf0u << p);
        // the floats of 8 at the same bits
        const float eight = __uint_as_float(8u << p), eight_high = __uint_as_float(0x80u << p);
        if (FIXED & UNPAIRED) {
          const float w = pass ? high : low;
          const int j = e + 16 * pass;
          s = FIXED & FMA ? __fmaf_rn(__fsub_rn(w, pass ? eight_high : eight), x.scaled[j], s)
                          : __fadd_rn(s, __fmaf_rn(w, x.scaled[j], x.eight[j]));
          continue;
        }
        const float second = __fmaf_rn(high, x.scaled[e + 16], x.eight[e + 16]);
        s = __fadd_rn(s, FIXED & FMA ? __fmaf_rn(__fsub_rn(low, eight), x.scaled[e], second)
                                     : __fadd_rn(__fmaf_rn(low, x.scaled[e], x.eight[e]), second));
      }
}

struct RowMatrix {
  float* out;
  const unsigned short* d;
  const unsigned char* qs;
  int rows;
};

// What is made of the outputs: act, swiglu of two matrices row by row; total, one matrix and base.
struct RowEnd {
  float *act, *total;
  const float* base;
};

// The work of a side: rows from .. to, counted over all matrices, in tiles of `tile` rows whose sums are
// made at once. kept: rows that there is room for: one tile, or where several warps have more than one,
// two. `pairs`: the first half of a tile is of matrix 0, the second the same rows of matrix 1. across:
// its warps. Columns are taken in windows of `across` groups of 32 blocks.
template <int N>
struct RowPlan {
  RowMatrix matrix[N];
  RowEnd end;
  int nb, from, to, tile, kept, across;
  bool pairs;

  __device__ __forceinline__ int groups() const { return (nb + 31) / 32; }
  __device__ __forceinline__ int height(int first) const { return min(tile, to - first); }

  // The matrix of a row of the tile that begins at `first`, and the row's number in it. end_of: where
  // the rows behind it stop being of this tile or matrix.
  __device__ __forceinline__ RowMatrix find(int first, int& row, int& end_of) const {
    RowMatrix found = matrix[0];
    end_of = first + height(first);
    if (pairs) {
      const int half = height(first) / 2, at = row - first;
      if (at >= half) found = matrix[N > 1 ? 1 : 0];
      if (at < half) end_of = first + half;
      row = first / 2 + (at < half ? at : at - half);
      return found;
    }
    int base = 0, next = matrix[0].rows;
#pragma unroll
    for (int i = 1; i < N; ++i)
      if (row >= next && matrix[i].rows > 0) {
        base = next;
        next += matrix[i].rows;
        found = matrix[i];
      }
    end_of = min(end_of, next);
    row -= base;
    return found;
  }
};

// A lane's weights on their way to shared memory: a ring of ROW_RING pairs of rows, one of which is
// multiplied. They are no registers, since the compiler waits for all loads into registers at the head of
// a loop, the latest too. They go through the rows of a warp piece by piece, those of one tile, window
// and matrix; a pair is of one piece.
template <int N>
struct RowLoads {
  const RowPlan<N>& p;
  int own, first, group, at, left;  // own: the warp's place in its side
  const unsigned char* from_qs;
  const unsigned short* from_d;

  __device__ __forceinline__ RowLoads(const RowPlan<N>& plan, int place)
      : p(plan), own(place), first(plan.from), group(place), at(plan.from), left(0) {}

  // The next piece that has rows, if one is left.
  __device__ __forceinline__ void advance() {
    while (first < p.to && (at >= first + p.height(first) || group >= p.groups())) {
      group += p.across;
      if (group >= p.groups()) group = own, first += p.tile;
      at = first;
    }
    if (first >= p.to) return;
    int number = at, end;
    const RowMatrix found = p.find(first, number, end);
    left = end - at;
    at = end;
    const int width = p.nb - group * 32, lane = threadIdx.x % 32;
    const long long block = (long long)number * p.nb + group * 32 + min(lane, width - 1);
    from_qs = found.qs + block * 16;
    from_d = found.d + block;
  }

  // Asks for a pair to the lane's place in the ring: a group of copies, even where nothing is left.
  // word: from there to the place of a scale.
  __device__ __forceinline__ void ask(unsigned char* to, int word) {
    if (left <= 0) advance();
    if (left > 0) {
      copy_16(to, from_qs);
      copy_half(to + word, from_d);
    }
    if (left > 1) {
      copy_16(to + 512, from_qs + p.nb * 16);
      copy_half(to + word + 128, from_d + p.nb);
    }
    copy_commit();
    from_qs += p.nb * 32;
    from_d += p.nb * 2;
    left -= 2;
  }
};

// The lane's places in the ring of its warp: of a pair two rows' words of 16 bytes, then two rows' words
// of 4 that its scales stand in. ask: the pair that has been multiplied; here: the next one.
struct RowRing {
  unsigned char *begin, *ask, *here;

  __device__ __forceinline__ RowRing(float* shared) {
    begin = (unsigned char*)shared + threadIdx.x / 32 * ROW_RING_BYTES + threadIdx.x % 32 * 16;
    here = begin;
    ask = begin + (ROW_RING - 1) * ROW_BYTES;
  }

  __device__ __forceinline__ static int word() { return 1024 - (int)(threadIdx.x % 32) * 12; }

  __device__ __forceinline__ void turn() {
    ask = here;
    here = here == begin + (ROW_RING - 1) * ROW_BYTES ? begin : here + ROW_BYTES;
  }
};

// The end of at most 32 rows of the tile at `first`, from row `from` of it on; a lane each. All lanes of
// the warp must call it. sums, scales: of the tile; with act the tile has no more than 32 rows.
template <int N, int FIXED>
__device__ __forceinline__ void row_finish(const RowPlan<N>& p, int first, int from, float* sums,
                                           const float* scales, int stride, int variants) {
  const int j = from + threadIdx.x % 32, height = p.height(first);
  float acc = 0.0f;
  int row = first + j, unused;
  if (j < height) {
    const RowMatrix found = p.find(first, row, unused);
    const float base = p.end.total ? p.end.base[row] : 0.0f;  // on its way while the chain runs
    acc = q4_whole_chain<FIXED>(sums + j * stride, scales + j * stride, p.nb, variants);
    found.out[row] = acc;
    if (p.end.total) p.end.total[row] = __fadd_rn(base, acc);
  }
  if (!p.end.act) return;
  const float up = __shfl_sync(0xffffffffu, acc, (j + height / 2) % 32);
  if (j < height / 2) p.end.act[row] = __fmul_rn(any_silu(acc, variants), up);
}

// What the sums of a piece are made with. inputs: of the lane's block, in shared memory; sums: of its
// first row, with fma the scales too, `step` floats from row to row. word: of the ring; half: where the
// scales of a pair's rows stand.
struct RowPiece {
  const float* inputs;
  float *sums, *scales;
  int step, word, half[2];
};

// The sums of R rows that are there next. PLAIN: inputs that the scaling is not exact for.
template <int N, int FIXED, bool PLAIN, int R>
__device__ __forceinline__ void row_step(RowLoads<N>& loads, RowRing& ring, const RowInputs& x,
                                         RowPiece& piece) {
  uint4 qs[R];
  float scale[R], s[R];
  copy_wait<ROW_RING - 2>();
#pragma unroll
  for (int r = 0; r < R; ++r) {
    qs[r] = *(const uint4*)(ring.here + r * 512);
    scale[r] = q4_scale(*(const unsigned short*)(ring.here + piece.half[r]));
  }
  loads.ask(ring.ask, piece.word);
  ring.turn();
  if (PLAIN) {
    float whole[R][1];
    q4_blocks<R, 1, FIXED>(whole, qs, piece.inputs, 0, Q4_MAGIC);
#pragma unroll
    for (int r = 0; r < R; ++r) s[r] = whole[r][0];
  } else {
    row_block<FIXED>(s, qs, x);
#pragma unroll
    for (int r = 0; r < R; ++r) s[r] = __fmul_rn(s[r], 1.099511627776e12f);  // 2^40
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    piece.sums[r * piece.step] = FIXED & FMA ? s[r] : __fmul_rn(scale[r], s[r]);
    if (FIXED & FMA) piece.scales[r * piece.step] = scale[r];
  }
  piece.sums += R * piece.step;
  if (FIXED & FMA) piece.scales += R * piece.step;
}

// The sums of a lane in one piece of `count` rows.
template <int N, int FIXED, bool PLAIN>
__device__ __forceinline__ void row_sums(RowLoads<N>& loads, RowRing& ring, const RowInputs& x,
                                         RowPiece piece, int count) {
#pragma unroll 1
  for (; count > 1; count -= 2) row_step<N, FIXED, PLAIN, 2>(loads, ring, x, piece);
  if (count > 0) row_step<N, FIXED, PLAIN, 1>(loads, ring, x, piece);
}

// The first of `units` things that is the share of number `at` when `count` share them as evenly as can
// be.
__device__ __forceinline__ int row_share(int units, int at, int count) {
  const unsigned each = (unsigned)units / (unsigned)count;
  return (int)each * at + min(at, units - (int)each * count);
}

// What of `units` things is this warp's side's, where `blocks` blocks share them: from .. to.
__device__ __forceinline__ void row_side_share(int units, int block, int blocks, int across,
                                               int& from, int& to) {
  const int side = threadIdx.x / 32 / across, sides = blockDim.x / 32 / across;
  const int first = row_share(units, block, blocks);
  const int own = row_share(units, block + 1, blocks) - first;
  from = first + row_share(own, side, sides);
  to = first + row_share(own, side + 1, sides);
}

// All warps of a side have come; their shared memory is in order.
__device__ __forceinline__ void row_side_sync(int side, int across) {
  if (across == 1) {
    __syncwarp();
  } else {
    barrier_sync(1 + side, 32 * across);
  }
}

// What a warp works with. shared: the block's memory, where the rings of all warps, the inputs, the sums
// of all sides and with fma as many scales stand in this order. Asks for the first weights.
template <int N>
struct RowWork {
  const RowPlan<N>& p;
  RowLoads<N> loads;
  RowRing ring;
  float *inputs, *all_sums, *sums, *scales;
  int side, own, stride;

  __device__ __forceinline__ RowWork(const RowPlan<N>& plan, float* shared)
      : p(plan), loads(plan, threadIdx.x / 32 % plan.across), ring(shared) {
    const int warps = blockDim.x / 32;
    side = threadIdx.x / 32 / p.across, own = loads.own, stride = q4_chain_stride(p.nb);
    inputs = shared + warps * (ROW_RING_BYTES / 4);
    all_sums = inputs + p.nb * ROW_PAD;
    sums = all_sums + side * p.kept * stride;
    scales = sums + warps / p.across * p.kept * stride;
#pragma unroll 1
    for (int k = 0; k < ROW_RING - 1; ++k) loads.ask(ring.begin + k * ROW_BYTES, RowRing::word());
  }
};

// All tiles of a side, once the inputs are there. unfit: groups of blocks that the scaling is not exact
// for. Lanes without a block write behind the row's sums.
template <int N, int FIXED>
__device__ __forceinline__ void row_tiles(RowWork<N>& work, unsigned unfit, int variants) {
  const RowPlan<N>& p = work.p;
  const int lane = threadIdx.x % 32, own = work.own, stride = work.stride, tiles = p.kept / p.tile;
  float *sums = work.sums, *scales = work.scales;
  RowInputs x;
  int count = 0;
  for (int first = p.from; first < p.to; first += p.tile, ++count) {
    const int part = count % tiles * p.tile * stride, height = p.height(first);
    for (int group = own; group < p.groups(); group += p.across) {
      const int block = min(group * 32 + lane, p.nb - 1);
      const float* mine = work.inputs + block * ROW_PAD;
      if (count == 0 || p.across < p.groups()) x.take(mine);
      for (int at = 0; at < height;) {
        int row = first + at, end;
        const unsigned short* d = p.find(first, row, end).d + (long long)row * p.nb + block;
        const int rows = end - first - at, to = part + at * stride + group * 32 + lane;
        const int word = RowRing::word();
        const RowPiece piece = {mine, sums + to, scales + to, stride, word,
                                {copied_half(word, d), copied_half(word + 128, d + p.nb)}};
        if (unfit & row_bit(group)) {
          row_sums<N, FIXED, true>(work.loads, work.ring, x, piece, rows);
        } else {
          row_sums<N, FIXED, false>(work.loads, work.ring, x, piece, rows);
        }
        at += rows;
      }
    }
    row_side_sync(work.side, p.across);
    // The others go on with the next tile, and the warps that run chains are others each time.
    for (int begin = 0; begin < height; begin += 32)
      if (own == (count + begin / 32) % p.across)
        row_finish<N, FIXED>(p, first, begin, sums + part, scales + part, stride, variants);
    if (p.across == 1) __syncwarp();  // it has room for one tile
  }
  copy_wait<0>();
}

// The same with the inputs brought first, normed or not; from: the row.
template <int N, int FIXED>
__device__ __forceinline__ void row_normed(const RowPlan<N>& p, const float* from, const RowNorm& norm,
                                           float* shared, int variants) {
  __shared__ unsigned shared_unfit[1];
  RowWork<N> work(p, shared);
  if (threadIdx.x == 0) shared_unfit[0] = 0;
  if (norm.on) {
    RowInput input;
    input.ask_weights(norm, p.nb * 4);
    __syncthreads();
    input.bring(work.inputs, from, norm, variants, p.nb * 4, work.all_sums, shared_unfit);
  } else {
    __syncthreads();
    bring_row(work.inputs, from, p.nb * 4, shared_unfit);
  }
  __syncthreads();
  row_tiles<N, FIXED>(work, shared_unfit[0], variants);
}

template <int N, int FIXED>
__device__ __forceinline__ void row_plain(const RowPlan<N>& p, const float* from, float* shared,
                                          int variants) {
  __shared__ unsigned shared_unfit[1];
  RowWork<N> work(p, shared);
  if (threadIdx.x == 0) shared_unfit[0] = 0;
  __syncthreads();
  bring_row(work.inputs, from, p.nb * 4, shared_unfit);
  __syncthreads();
  row_tiles<N, FIXED>(work, shared_unfit[0], variants);
}
