// q4_rows: Q4_0 rows times M float rows, each weight read once. Contract 1.3, 5.
// A block takes tiles of weight rows in turn, and a tile in windows of blocks of 32 weights. A thread
// owns whole blocks, the same one of R rows, and leaves their sums in shared memory; when all of a
// window are there, one thread a (row, input) goes on with its chain, while the others make the sums
// of the next window. Its inputs are copied, and the next weights loaded, before they are asked for.
// Which thread makes a block sum cannot change it, and a chain belongs to one thread: neither the
// grid, nor the tile, nor R, nor M can change a bit.
#pragma once
#include "async_copy.cuh"
#include "chain.cuh"
#include "q4.cuh"

#define Q4_THREADS 256
#define Q4_PAD 36  // floats of a staged block of inputs: 16-byte loads of a warp meet no bank twice

// Blocks of a window: the row in equal parts, multiples of 4 where there is more than one. ops.py
// sizes the memory by it.
template <int M>
__device__ __forceinline__ int q4_window(int nb) {
  constexpr int most = M == 1 ? 160 : M == 2 ? 64 : 32;
  const int windows = (nb + most - 1) / most;
  return windows == 1 ? nb : ((nb + windows - 1) / windows + 3) / 4 * 4;
}

// Blocks that the inputs of one row have room for, and floats from the sums of one row to the next;
// numbers that the compiler knows where many rows make many addresses.
template <int M>
__device__ __forceinline__ int q4_span(int window) {
  return M > 2 ? 32 : window;
}
template <int M>
__device__ __forceinline__ int q4_stride(int window) {
  return M > 2 ? 36 : (window + 31) / 32 * 32 + 4;
}

// Buffers of sums: two, so that the chains of a window run while the next one is made; one where
// that memory would leave room for one block in place of two.
template <int M>
__device__ __forceinline__ constexpr int q4_buffers() {
  return M > 4 ? 1 : 2;
}

// What the windows of all tiles of this block share. sums: buffers of tile * M rows; scales: of tile
// rows, with fma alone; inputs: two windows of M rows.
struct Q4Work {
  const unsigned short* d;
  const unsigned char* qs;
  const float* x;
  float *out, *sums, *scales, *inputs;
  int rows, tile, nb, count, window, windows;
  unsigned magic;
};

// One window: `from` and `width` in blocks, the rows of its tile from `first` on.
struct Q4Window {
  int number, from, width, first, height;

  __device__ explicit Q4Window(const Q4Work& t) : number(0), from(0), first(blockIdx.x * t.tile) {
    measure(t);
  }

  __device__ void advance(const Q4Work& t) {
    ++number;
    from += t.window;
    if (from >= t.nb) from = 0, first += gridDim.x * t.tile;
    measure(t);
  }

  __device__ void measure(const Q4Work& t) {
    width = min(t.window, t.nb - from);
    height = min(t.tile, t.rows - first);
  }

  __device__ bool there() const { return height > 0; }
};

// Starts copying the inputs of a window; rows that are not there stay as they are.
template <int M>
__device__ __forceinline__ void q4_stage(const Q4Work& t, const Q4Window& at) {
  const int span = q4_span<M>(t.window);
  float* to = t.inputs + at.number % 2 * M * span * Q4_PAD;
  const int fours = at.width * 8;
  for (int m = 0; m < t.count; ++m)
    for (int i = threadIdx.x; i < fours; i += Q4_THREADS)
      copy_16(to + (m * span + i / 8) * Q4_PAD + i % 8 * 4,
              t.x + ((long long)m * t.nb + at.from) * 32 + i * 4);
}

// Goes through a thread's blocks, window after window: every Q4_THREADS-th of a window's. The
// divisions are done where the width changes.
template <int R>
struct Q4Cursor {
  Q4Window at;
  int group, b, first_group, first_b, groups_on, blocks_on;

  __device__ explicit Q4Cursor(const Q4Work& t) : at(t) { start(); }

  __device__ void start() {
    group = threadIdx.x / at.width;
    b = threadIdx.x - group * at.width;
    first_group = group;
    first_b = b;
    groups_on = Q4_THREADS / at.width;
    blocks_on = Q4_THREADS - groups_on * at.width;
  }

  __device__ bool inside(const Q4Window& window) const {
    return at.number == window.number && group * R < at.height;
  }

  // The next block; a thread that has none in a window goes to the next one.
  __device__ void advance(const Q4Work& t) {
    group += groups_on;
    b += blocks_on;
    if (b >= at.width) b -= at.width, ++group;
    enter(t);
  }

  __device__ void enter(const Q4Work& t) {
    while (at.there() && group * R >= at.height) {
      const int width = at.width;
      at.advance(t);
      group = first_group;
      b = first_b;
      if (at.width != width) start();
    }
  }

  // Weights and scales of the block; the last row stands for rows that are not there.
  __device__ void load(const Q4Work& t, uint4 (&qs)[R], unsigned short (&d)[R]) const {
    if (!at.there()) return;
    const long long row = (long long)at.first * t.nb + at.from;
    const unsigned char* weights = t.qs + row * 16;
    const unsigned short* scales = t.d + row;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const unsigned block = min(group * R + r, at.height - 1) * t.nb + b;
      qs[r] = load_once(weights + block * 16u);
      d[r] = __ldg(scales + block);
    }
  }
};

// The block sums of a window, times their scales unless an fma does that in the chain.
template <int R, int M, int FIXED>
__device__ __forceinline__ void q4_compute(const Q4Work& t, Q4Cursor<R>& cursor, uint4 (&qs)[R],
                                           unsigned short (&d)[R], const Q4Window& at) {
  const int span = q4_span<M>(t.window), stride = q4_stride<M>(t.window);
  const int part = at.number % q4_buffers<M>() * t.tile * stride;
  float *sums = t.sums + part * M, *scales = t.scales + part;
  const float* inputs = t.inputs + (t.windows > 1 ? at.number % 2 : 0) * M * span * Q4_PAD;
  while (cursor.inside(at)) {
    const int group = cursor.group, b = cursor.b;
    uint4 now[R];
    float scale[R], s[R][M];
#pragma unroll
    for (int r = 0; r < R; ++r) now[r] = qs[r], scale[r] = half_to_f32(d[r]);
    cursor.advance(t);
    cursor.load(t, qs, d);
    q4_blocks<R, M, FIXED>(s, now, inputs + b * Q4_PAD, span * Q4_PAD, t.magic);
    float *sum = sums + group * R * M * stride + b, *scale_at = scales + group * R * stride + b;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (group * R + r >= at.height) continue;
      if (FIXED & FMA) scale_at[r * stride] = scale[r];
#pragma unroll
      for (int m = 0; m < M; ++m)
        sum[(r * M + m) * stride] = FIXED & FMA ? s[r][m] : __fmul_rn(scale[r], s[r][m]);
    }
  }
}

// One step of a chain: acc = acc + d * s; the product is made already, unless with fma.
template <int FIXED>
__device__ __forceinline__ float q4_step(float acc, float value, const float* scale) {
  return FIXED & FMA ? __fmaf_rn(*scale, value, acc) : __fadd_rn(acc, value);
}

// Goes on with the chain of one row and input over a window; part: its partial sums, one but for
// split_k.
template <int FIXED>
__device__ __forceinline__ void q4_chain(float (&part)[4], const float* sums, const float* scales,
                                         int width, int variants) {
  if (!(FIXED & FMA) && !(variants & SPLIT_K)) {
    part[0] = chain_sum(sums, width, part[0]);
    return;
  }
  const bool split = variants & SPLIT_K;
  int b = 0;
  for (; b + 4 <= width; b += 4) {
    const float4 four = *(const float4*)(sums + b);
    if (split) {
      part[0] = q4_step<FIXED>(part[0], four.x, scales + b);
      part[1] = q4_step<FIXED>(part[1], four.y, scales + b + 1);
      part[2] = q4_step<FIXED>(part[2], four.z, scales + b + 2);
      part[3] = q4_step<FIXED>(part[3], four.w, scales + b + 3);
    } else {
      part[0] = q4_step<FIXED>(part[0], four.x, scales + b);
      part[0] = q4_step<FIXED>(part[0], four.y, scales + b + 1);
      part[0] = q4_step<FIXED>(part[0], four.z, scales + b + 2);
      part[0] = q4_step<FIXED>(part[0], four.w, scales + b + 3);
    }
  }
  // a window starts at a multiple of 4, so b mod 4 is that of the whole row
  if (b < width) part[0] = q4_step<FIXED>(part[0], sums[b], scales + b);
  if (b + 1 < width) {
    float& second = split ? part[1] : part[0];
    second = q4_step<FIXED>(second, sums[b + 1], scales + b + 1);
  }
  if (b + 2 < width) {
    float& third = split ? part[2] : part[0];
    third = q4_step<FIXED>(third, sums[b + 2], scales + b + 2);
  }
}

// The chain of one thread, row `row` of a tile and input m; after the last window of a row its
// output.
template <int M, int FIXED>
__device__ __forceinline__ void q4_finish(const Q4Work& t, const Q4Window& at, float (&part)[4],
                                          int row, int m, int variants) {
  if (row >= at.height) return;
  const int first = at.number % q4_buffers<M>() * t.tile + row, stride = q4_stride<M>(t.window);
  q4_chain<FIXED>(part, t.sums + (first * M + m) * stride, t.scales + first * stride, at.width,
                  variants);
  if (at.from + at.width < t.nb) return;
  float acc = part[0];
  if (variants & SPLIT_K) {
    acc = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) acc = __fadd_rn(acc, part[i]);
  }
  t.out[(long long)m * t.rows + at.first + row] = acc;
#pragma unroll
  for (int i = 0; i < 4; ++i) part[i] = 0.0f;
}

// All tiles of this block.
template <int R, int M, int FIXED>
__device__ __forceinline__ void q4_tiles(const Q4Work& t, int variants) {
  uint4 qs[R];
  unsigned short d[R];
  Q4Cursor<R> cursor(t);
  cursor.enter(t);
  cursor.load(t, qs, d);
  Q4Window now(t), next(t), last(t);
  q4_stage<M>(t, now);
  copy_commit();
  const int m = threadIdx.x % M, row = threadIdx.x / M;
  float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  while (true) {
    copy_wait<0>();
    __syncthreads();
    next.advance(t);
    if (t.windows > 1 && next.there()) q4_stage<M>(t, next);
    copy_commit();
    if (now.number > 0 && row < t.tile && m < t.count)
      q4_finish<M, FIXED>(t, last, part, row, m, variants);
    if (!now.there()) break;
    if (q4_buffers<M>() == 1) __syncthreads();
    q4_compute<R, M, FIXED>(t, cursor, qs, d, now);
    last = now;
    now = next;
  }
}

// Out of line: what the variants need must cost the exact tier no register.
template <int R, int M, int FIXED>
__device__ __noinline__ void q4_variant_tiles(const Q4Work t, int variants) {
  q4_tiles<R, M, FIXED>(t, variants);
}

// The tiles with what the variants ask for; shared: as ops.py sizes it.
template <int R, int M>
__device__ __forceinline__ void q4_rows(float* out, const unsigned short* d,
                                        const unsigned char* qs, const float* x, int variants,
                                        int rows, int nb, int tile, int count, float* shared) {
  const int window = q4_window<M>(nb), windows = (nb + window - 1) / window;
  float* sums = shared + (windows > 1 ? 2 : 1) * M * q4_span<M>(window) * Q4_PAD;
  float* scales = sums + q4_buffers<M>() * M * tile * q4_stride<M>(window);
  // Q4_MAGIC, in a way that no compiler can see: rows is never negative
  const unsigned magic = Q4_MAGIC | (unsigned)rows >> 31;
  const Q4Work t = {d,    qs, x,     out,    sums,    scales, shared, rows,
                    tile, nb, count, window, windows, magic};
  if (!(variants & (FMA | UNPAIRED))) {
    q4_tiles<R, M, 0>(t, variants);
  } else if (!(variants & UNPAIRED)) {
    q4_variant_tiles<R, M, FMA>(t, variants);
  } else if (!(variants & FMA)) {
    q4_variant_tiles<R, M, UNPAIRED>(t, variants);
  } else {
    q4_variant_tiles<R, M, FMA | UNPAIRED>(t, variants);
  }
}
