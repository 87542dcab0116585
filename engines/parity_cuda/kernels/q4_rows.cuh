// q4_rows: Q4_0 rows times M float rows, each weight read once. Contract 1.3, 5.
// A block takes tiles of weight rows in turn, and a tile in windows of blocks of 32 weights, which are
// copied to shared memory while the window before is worked on. A thread makes the sums of one block
// for R rows and all inputs, so that a read of an input serves R rows and threads side by side read
// the same one. When all sums of a window are there, a thread goes on with the chains of four rows.
// Which thread makes a sum cannot change it, and a chain belongs to one thread: neither the grid, nor
// the tile, nor the window, nor R, nor M can change a bit.
#pragma once
#include "async_copy.cuh"
#include "overlap.cuh"
#include "q4_sums.cuh"

// R: weight rows of a thread. Where M is large more of them do not fit in its registers.
template <int M>
__device__ __forceinline__ constexpr int q4_group() {
  return M > 4 ? 3 : 4;
}

// What the windows of all tiles of this block share. weights, halves: two windows of `groups` times R
// rows, row r of a tile in slot r % R * groups + r / R: threads side by side meet no bank twice. inputs:
// two windows. sums, scales: `buffers` windows, by block, input and row, `high` rows apart.
struct Q4Work {
  const unsigned short* d;
  const unsigned char* qs;
  const float* x;
  float* out;
  char* weights;
  unsigned short* halves;
  float *inputs, *sums, *scales;
  int rows, tile, nb, count, window, groups, high, pitch, half_pitch, buffers, variants;
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

// --- copies ---------------------------------------------------------------------------------------

// Starts copying the weights of a window and their scales: eight threads a row.
template <int R>
__device__ __forceinline__ void q4_stage_weights(const Q4Work& t, const Q4Window& at) {
  const int part = at.number % 2 * R * t.groups, lane = threadIdx.x % 8, step = blockDim.x / 8;
#pragma unroll 1
  for (int row = threadIdx.x / 8; row < at.height; row += step) {
    const int slot = part + row % R * t.groups + row / R;
    const long long begin = (long long)(at.first + row) * t.nb + at.from;
    char* to = t.weights + slot * t.pitch * 16;
#pragma unroll 2
    for (int b = lane; b < at.width; b += 8)
      copy_16((float*)(to + b * 16), (const float*)(t.qs + (begin + b) * 16));
    unsigned short* halves = t.halves + slot * t.half_pitch;
    if (t.nb % 2) {  // rows that start at any two bytes
#pragma unroll 1
      for (int b = lane; b < at.width; b += 8) halves[at.from % 2 + b] = __ldg(t.d + begin + b);
    } else {
      const unsigned short* from = t.d + begin - at.from % 2;
#pragma unroll 1
      for (int b = 2 * lane; b < at.from % 2 + at.width; b += 16)
        copy_4((float*)(halves + b), (const float*)(from + b));
    }
  }
}

// The same for the inputs; rows that are not there stay as they are.
template <int M>
__device__ __forceinline__ void q4_stage_inputs(const Q4Work& t, const Q4Window& at) {
  float* to = t.inputs + at.number % 2 * t.window * q4_pitch<M>();
#pragma unroll 1
  for (int m = 0; m < t.count; ++m)
#pragma unroll 1
    for (int i = threadIdx.x; i < at.width * 8; i += blockDim.x)
      copy_16(to + i / 8 * q4_pitch<M>() + m * 32 + i % 8 * 4,
              t.x + ((long long)m * t.nb + at.from) * 32 + i * 4);
}

// --- sums -----------------------------------------------------------------------------------------

// One value of each of R rows that lie side by side.
template <int R>
__device__ __forceinline__ void q4_put(float* to, const float (&v)[R]) {
  if constexpr (R == 4) {
    *(float4*)to = make_float4(v[0], v[1], v[2], v[3]);
  } else {
#pragma unroll
    for (int r = 0; r < R; ++r) to[r] = v[r];
  }
}

// The block sums of a window, times their scales unless an fma does that in the chain.
template <int R, int M, int FIXED>
__device__ __forceinline__ void q4_compute(const Q4Work& t, const Q4Window& at) {
  const int part = at.number % 2 * R * t.groups, buffer = at.number % t.buffers * t.window;
  const char* weights = t.weights + part * t.pitch * 16;
  const unsigned short* halves = t.halves + part * t.half_pitch + at.from % 2;
  const float* inputs = t.inputs + at.number % 2 * t.window * q4_pitch<M>();
  int g = threadIdx.x % t.groups, b = threadIdx.x / t.groups;
  const int blocks_on = blockDim.x / t.groups, groups_on = blockDim.x % t.groups;
#pragma unroll 1
  while (b < at.width) {
    uint4 qs[R];
    float scale[R], s[R][M];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int slot = r * t.groups + g;
      qs[r] = *(const uint4*)(weights + (slot * t.pitch + b) * 16);
      scale[r] = q4_scale(halves[slot * t.half_pitch + b]);
    }
    q4_many_blocks<R, M, FIXED>(s, qs, inputs + b * q4_pitch<M>(), t.magic);
    float* sums = t.sums + (buffer + b) * M * t.high + g * R;
#pragma unroll
    for (int m = 0; m < M; ++m) {
      float v[R];
#pragma unroll
      for (int r = 0; r < R; ++r) v[r] = FIXED & FMA ? s[r][m] : __fmul_rn(scale[r], s[r][m]);
      q4_put<R>(sums + m * t.high, v);
    }
    if (FIXED & FMA) q4_put<R>(t.scales + (buffer + b) * t.high + g * R, scale);
    b += blocks_on, g += groups_on;
    if (g >= t.groups) g -= t.groups, ++b;
  }
}

// --- chains ---------------------------------------------------------------------------------------

// What a thread's chains are: rows 4 * quad .. 4 * quad + 3 of a tile, input m, of the blocks b with
// b % step = at; step is 4 with split_k, where four threads side by side have the four partial sums.
struct Q4Chains {
  int quad, m, at, step;

  __device__ Q4Chains(const Q4Work& t, int variants) {
    step = variants & SPLIT_K ? 4 : 1;
    at = threadIdx.x % step;
    const int quads = (t.tile + 3) / 4;
    quad = threadIdx.x / step % quads, m = threadIdx.x / step / quads;
  }
};

// acc = acc + d * s; the product is made already, unless with fma.
template <int FIXED>
__device__ __forceinline__ float q4_step(float acc, float value, float scale) {
  return FIXED & FMA ? __fmaf_rn(scale, value, acc) : __fadd_rn(acc, value);
}

// Goes on with the chains of this thread over a window.
template <int M, int FIXED>
__device__ __forceinline__ void q4_chain(const Q4Work& t, const Q4Window& at, float (&acc)[4],
                                         const Q4Chains& chains) {
  const int buffer = at.number % t.buffers * t.window, high = t.high;
  const float* sums = t.sums + (buffer * M + chains.m) * high + chains.quad * 4;
  const float* scales = t.scales + buffer * high + chains.quad * 4;
#pragma unroll 4
  for (int b = (chains.at - at.from) & (chains.step - 1); b < at.width; b += chains.step) {
    const float4 v = *(const float4*)(sums + b * M * high);
    const float4 d = FIXED & FMA ? *(const float4*)(scales + b * high) : v;
    acc[0] = q4_step<FIXED>(acc[0], v.x, d.x), acc[1] = q4_step<FIXED>(acc[1], v.y, d.y);
    acc[2] = q4_step<FIXED>(acc[2], v.z, d.z), acc[3] = q4_step<FIXED>(acc[3], v.w, d.w);
  }
}

// The chains over a window, and after the last window of a row its outputs.
template <int M>
__device__ __forceinline__ void q4_finish(const Q4Work& t, const Q4Window& at, float (&acc)[4],
                                          const Q4Chains& chains) {
  if (chains.m < t.count) {
    if (t.variants & FMA) {
      q4_chain<M, FMA>(t, at, acc, chains);
    } else {
      q4_chain<M, 0>(t, at, acc, chains);
    }
  }
  if (at.from + at.width < t.nb) return;
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    float whole = acc[0];
    if (chains.step > 1) {
      whole = 0.0f;
      for (int part = 0; part < 4; ++part)
        whole = __fadd_rn(whole, __shfl_sync(0xffffffffu, acc[0], (threadIdx.x & 28) + part));
    }
    const int row = chains.quad * 4 + i;
    if (chains.m < t.count && row < at.height && chains.at == 0)
      t.out[(long long)chains.m * t.rows + at.first + row] = whole;
    acc[0] = acc[1], acc[1] = acc[2], acc[2] = acc[3], acc[3] = 0.0f;
  }
}

// --- all tiles ------------------------------------------------------------------------------------

template <int R, int M>
__device__ __forceinline__ void q4_sums(const Q4Work& t, const Q4Window& at) {
  const int given = t.variants & (FMA | UNPAIRED);
  if (given == 0) {
    q4_compute<R, M, 0>(t, at);
  } else if (given == FMA) {
    q4_compute<R, M, FMA>(t, at);
  } else if (given == UNPAIRED) {
    q4_compute<R, M, UNPAIRED>(t, at);
  } else {
    q4_compute<R, M, FMA | UNPAIRED>(t, at);
  }
}

template <int R, int M>
__device__ __forceinline__ void q4_tiles(const Q4Work& t) {
  Q4Window now(t), next(t), last(t);
  if (now.there()) q4_stage_weights<R>(t, now);
  wait_for_previous();
  let_next_start();
  if (now.there()) q4_stage_inputs<M>(t, now);
  copy_commit();
  const Q4Chains chains(t, t.variants);
  float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  while (true) {
    copy_wait<0>();
    __syncthreads();
    next.advance(t);
    if (next.there()) q4_stage_weights<R>(t, next), q4_stage_inputs<M>(t, next);
    copy_commit();
    if (now.number > 0) q4_finish<M>(t, last, acc, chains);
    if (!now.there()) break;
    if (t.buffers == 1) __syncthreads();
    q4_sums<R, M>(t, now);
    last = now;
    now = next;
  }
}

// shared: as many_shapes.py sizes it.
template <int M>
__device__ __forceinline__ void q4_rows(float* out, const unsigned short* d,
                                        const unsigned char* qs, const float* x, int variants,
                                        int rows, int nb, int tile, int window, int buffers,
                                        int count, char* shared) {
  constexpr int R = q4_group<M>();
  const int groups = (tile + R - 1) / R, high = (groups * R + 3) / 4 * 4;
  const int pitch = window | 1, half_pitch = (window + 2) / 2 | 1;
  float* inputs = (float*)(shared + 2 * groups * R * pitch * 16);
  float* sums = inputs + 2 * window * q4_pitch<M>();
  float* scales = sums + buffers * window * M * high;
  float* halves = scales + (variants & FMA ? buffers * window * high : 0);
  // Q4_MAGIC, in a way that no compiler can see: rows is never negative
  const unsigned magic = Q4_MAGIC | (unsigned)rows >> 31;
  const Q4Work t = {d, qs, x, out, shared, (unsigned short*)halves, inputs, sums, scales, rows, tile,
                    nb, count, window, groups, high, pitch, 2 * half_pitch, buffers, variants,
                    magic};
  q4_tiles<R, M>(t);
}
