// q4_row: rows of Q4_0 matrices times one float row, its inputs in registers. Contract 1.3, 5.
//
// A warp owns 32 blocks of inputs, a lane one, and goes through weight rows; it leaves the sum of each
// block in shared memory, where one lane a row runs the chain over blocks. Which warp makes a sum cannot
// change it, and a chain belongs to one lane: neither the grid, nor the tile, nor how many warps share
// the rows can change a bit.
//
// A weight costs one instruction before its product. Four bits cut out of a word at bit p are, as they
// stand, the float n * 2^(p - 149): a subnormal, or for p = 20 and n > 7 the normal number of the same
// formula. So (n - 8) * x is one fma of that float, x * 2^(149 - p) and -8 * x, rounded once as the
// contract's product is. 2^149 is too much for a float: all of it is done 2^-40 smaller, which is exact
// as long as every input is 0 or between LEAST and MOST, since then no product is subnormal, and a sum
// that is, is exact. A warp with any other input (NaN too) takes q4_blocks instead.
#pragma once
#include "async_copy.cuh"
#include "norm.cuh"
#include "overlap.cuh"
#include "q4.cuh"
#include "q4_chain.cuh"

#define ROW_GROUPS 16    // warps beside each other, of 32 blocks of columns each
#define ROW_AHEAD 4      // weight rows on their way to a lane
#define ROW_PAD 36     // floats of a staged block of inputs: 16-byte loads of a warp meet no bank twice
#define ROW_WARP (32 * ROW_PAD)  // floats of a warp's inputs

// The inputs of a lane: times 2^(149 - p - 40), where p is the bit that their weight stands at, and
// times -8 * 2^-40. The bytes of a word stand at 8 and 16: as they are, or the outer ones brought there.
struct RowInputs {
  float scaled[32], eight[32];

  // x: 32 floats at a multiple of 16 bytes. Whether all are of a size that the scaling is exact for.
  __device__ __forceinline__ bool take(const float* x) {
    bool fit = true;
#pragma unroll
    for (int j = 0; j < 32; j += 4) {
      const float4 four = *(const float4*)(x + j);
      const float v[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float low = i < 2 ? 2.535301200456459e30f : 9.903520314283042e27f;  // 2^101, 2^93
        scaled[j + i] = __fmul_rn(v[i], j < 16 ? low : low / 16.0f);
        eight[j + i] = __fmul_rn(v[i], -7.275957614183426e-12f);  // -2^-37
        const unsigned size = __float_as_uint(v[i]) & 0x7fffffffu;
        // LEAST and MOST: 2^-86 and 2^26
        fit = fit && (size == 0 || (size >= 0x14800000u && size <= 0x4c800000u));
      }
    }
    return fit;
  }
};

// A block's sum of contract 1.3, times 2^-40.
template <int FIXED>
__device__ __forceinline__ float row_block(uint4 qs, const RowInputs& x) {
  const unsigned word[4] = {qs.x, qs.y, qs.z, qs.w};
  float s = 0.0f;
#pragma unroll
  for (int pass = 0; pass < (FIXED & UNPAIRED ? 2 : 1); ++pass)
#pragma unroll
    for (int e = 0; e < 16; ++e) {
      const int i = e % 4, p = i < 2 ? 8 : 16;
      const unsigned from = i % 3 == 0 ? __byte_perm(word[e / 4], 0, 0x4304) : word[e / 4];
      const float low = __uint_as_float(from & 0xfu << p), high = __uint_as_float(from & 0xf0u << p);
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
  return s;
}

struct RowMatrix {
  float* out;
  const unsigned short* d;
  const unsigned char* qs;
  int rows;
};

// What is done with x before it is multiplied: nothing, or the norm by w. out: where block 0 puts it.
struct RowNorm {
  const float* w;
  float* out;
  float eps;
  bool on;
};

__device__ __forceinline__ float row_factor(const float* x, float eps, int variants, int cols,
                                            float* part) {
  return variants & NORM_TREE ? tree_row_root(x, part, eps, variants, cols)
                              : row_root(x, part, eps, variants, cols);
}

// What is made of the outputs: act, swiglu of two matrices row by row; total, one matrix and base.
struct RowEnd {
  float *act, *total;
  const float* base;
};

// The work of a block: rows from .. to, counted over all matrices, in tiles of `tile` rows whose sums are
// kept at once. `pairs`: the first half of a tile is of matrix 0, the second the same rows of matrix 1.
// Columns are taken in windows of at most ROW_GROUPS groups of 32 blocks.
template <int N>
struct RowPlan {
  RowMatrix matrix[N];
  const float* x;
  RowNorm norm;
  RowEnd end;
  int nb, from, to, tile;
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

// What a warp has of a window: its group of blocks, and every `sides`-th row from `side` on.
struct RowShare {
  int group, width;
  unsigned side, sides;

  __device__ __forceinline__ RowShare(int window, int groups, int nb) {
    const unsigned warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const unsigned here = min(ROW_GROUPS, groups - window * ROW_GROUPS);
    sides = warps / here;
    side = warp / here;
    group = window * ROW_GROUPS + (int)(warp - side * here);
    width = min(32, nb - group * 32);
    if (side >= sides) side = 1u << 24;  // more rows than a tile has: nothing is left for this warp
  }

  // How many of its rows lie from `at` on before `end`.
  __device__ __forceinline__ int count(int at, int end) const {
    return (int)((unsigned)(end - at + (int)sides - 1) / sides);
  }
};

// A lane's weights: ROW_AHEAD rows on their way, which are asked for while those before are multiplied.
// They go through the rows of a warp piece by piece, those of one tile, window and matrix; every group of
// ROW_AHEAD is of one piece.
template <int N>
struct RowLoads {
  const RowPlan<N>& p;
  RowShare share;
  int first, window, at, left;
  const unsigned char* from_qs;
  const unsigned short* from_d;
  unsigned step;
  uint4 qs[ROW_AHEAD];
  unsigned short d[ROW_AHEAD];

  __device__ __forceinline__ RowLoads(const RowPlan<N>& plan, const RowShare& of_first)
      : p(plan),
        share(of_first),
        first(plan.from),
        window(0),
        at(plan.from + (int)of_first.side),
        left(0) {}

  // Before each group: the next piece that has rows, if the last one is done and one is left.
  __device__ __forceinline__ void start() {
    if (left <= 0) advance();
  }

  __device__ __forceinline__ void advance() {
    while (first < p.to && at >= first + p.height(first)) {
      if (++window * ROW_GROUPS >= p.groups()) window = 0, first += p.tile;
      if (p.groups() > ROW_GROUPS) share = RowShare(window, p.groups(), p.nb);
      at = first + (int)share.side;
    }
    left = 0;
    if (first >= p.to) return;
    int number = at, end;
    const RowMatrix found = p.find(first, number, end);
    left = share.count(at, end);
    at += left * (int)share.sides;
    const int lane = threadIdx.x % 32;
    const long long block = (long long)number * p.nb + share.group * 32 + min(lane, share.width - 1);
    from_qs = found.qs + block * 16;
    from_d = found.d + block;
    step = share.sides * (unsigned)p.nb;
  }

  __device__ __forceinline__ void ask(int k) {
    if (left > k) {
      qs[k] = load_once(from_qs);
      d[k] = __ldg(from_d);
    }
    from_qs += step * 16u;
    from_d += step;
  }

  // After each group.
  __device__ __forceinline__ void end() { left -= ROW_AHEAD; }
};

// x of this warp, normed where asked for, to its part of shared memory: ROW_PAD floats a block.
template <int N>
__device__ __forceinline__ void row_stage(const RowPlan<N>& p, float* to, int first, int width,
                                          float r, bool keep) {
  const int lane = threadIdx.x % 32;
#pragma unroll 8
  for (int i = lane; i < width * 8; i += 32) {
    float4 v = ((const float4*)p.x)[first * 8 + i];
    if (p.norm.on) {
      const float4 w = ((const float4*)p.norm.w)[first * 8 + i];
      v = make_float4(normed(v.x, r, w.x), normed(v.y, r, w.y), normed(v.z, r, w.z),
                      normed(v.w, r, w.w));
      if (keep) ((float4*)p.norm.out)[first * 8 + i] = v;
    }
    ((float4*)(to + i / 8 * ROW_PAD))[i % 8] = v;
  }
}

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

// The sums of a lane in one piece of `count` rows. PLAIN: inputs that the scaling is not exact for, from
// shared memory. sums, scales: of the lane's block in the first row, `step` floats from one to the next.
template <int N, int FIXED, bool PLAIN>
__device__ __forceinline__ void row_sums(RowLoads<N>& loads, const RowInputs& x, const float* inputs,
                                         float* sums, float* scales, int step, int count) {
#pragma unroll 1
  for (; count > 0; count -= ROW_AHEAD) {
    loads.start();
#pragma unroll
    for (int k = 0; k < ROW_AHEAD; ++k) {
      if (count > k) {
        uint4 now[1] = {loads.qs[k]};
        const float scale = q4_scale(loads.d[k]);
        float s;
        if (PLAIN) {
          float whole[1][1];
          q4_blocks<1, 1, FIXED>(whole, now, inputs, 0, Q4_MAGIC);
          s = whole[0][0];
        } else {
          s = __fmul_rn(row_block<FIXED>(now[0], x), 1.099511627776e12f);  // 2^40
        }
        *sums = FIXED & FMA ? s : __fmul_rn(scale, s);
        if (FIXED & FMA) *scales = scale;
      }
      sums += step;
      if (FIXED & FMA) scales += step;
      loads.ask(k);
    }
    loads.end();
  }
}

// All tiles of this block. shared: ROW_WARP floats a warp, then sums (two tiles of them where there is
// more than one), then with fma as many scales. Lanes without a block write behind the row's sums.
template <int N, int FIXED>
__device__ __forceinline__ void row_tiles(const RowPlan<N>& p, float* shared, int variants) {
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int stride = q4_chain_stride(p.nb), buffers = p.to - p.from > p.tile ? 2 : 1;
  const int windows = (p.groups() + ROW_GROUPS - 1) / ROW_GROUPS;
  float* inputs = shared + warp * ROW_WARP;
  float* sums = shared + warps * ROW_WARP;
  float* scales = sums + buffers * p.tile * stride;
  RowShare share(0, p.groups(), p.nb);
  RowLoads<N> loads(p, share);
  loads.start();
#pragma unroll
  for (int k = 0; k < ROW_AHEAD; ++k) loads.ask(k);
  loads.end();
  if (p.norm.on)
    for (int i = threadIdx.x; i < p.nb; i += blockDim.x) prefetch_line(p.norm.w + i * 32);
  wait_for_previous();
  let_next_start();
  float r = 0.0f;
  if (p.norm.on) {
    r = row_factor(p.x, p.norm.eps, variants, p.nb * 32, sums);
    __syncthreads();
  }
  RowInputs x;
  bool plain = false;
  int count = 0;
  for (int first = p.from; first < p.to; first += p.tile, ++count) {
    const int part = count % buffers * p.tile * stride, height = p.height(first);
    for (int window = 0; window < windows; ++window) {
      if (windows > 1) share = RowShare(window, p.groups(), p.nb);
      const float* mine = inputs + min(lane, share.width - 1) * ROW_PAD;
      if (windows > 1 || count == 0) {
        __syncwarp();
        row_stage(p, inputs, share.group * 32, share.width, r,
                  blockIdx.x == 0 && share.side == 0 && count == 0);
        __syncwarp();
        plain = __any_sync(0xffffffffu, !x.take(mine)) != 0;
      }
      for (int at = (int)share.side; at < height;) {
        int row = first + at, end;
        p.find(first, row, end);
        const int rows = share.count(first + at, end);
        const int to = part + at * stride + share.group * 32 + lane;
        const int step = (int)share.sides * stride;
        if (plain) {
          row_sums<N, FIXED, true>(loads, x, mine, sums + to, scales + to, step, rows);
        } else {
          row_sums<N, FIXED, false>(loads, x, mine, sums + to, scales + to, step, rows);
        }
        at += rows * (int)share.sides;
      }
    }
    __syncthreads();
    // The others go on with the next tile, and the warps that run chains are others each time.
    for (int from = 0; from < height; from += 32)
      if (warp == (count + from / 32) % warps)
        row_finish<N, FIXED>(p, first, from, sums + part, scales + part, stride, variants);
  }
}

// The first of `units` things that is block `block`'s when `blocks` share them as evenly as can be.
__device__ __forceinline__ int row_share(int units, int block, int blocks) {
  const unsigned each = (unsigned)units / (unsigned)blocks;
  return (int)each * block + min(block, units - (int)each * blocks);
}
