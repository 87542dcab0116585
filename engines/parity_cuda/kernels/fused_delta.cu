// fused_delta: the delta rule with the gated norm behind it, in one launch: delta_step, headnorm
// (or norm_tree), silu_gate. Contract 3.2.
// Launch: grid (value heads), 256 threads, dynamic shared memory by delta.py. A block owns a head, for
// all M rows. S of 128 x 128 is in registers, a column in two lanes of a warp; any other in shared
// memory, a column a thread, `tile` columns (128 or 32) at a time. The launch before makes q, k, v,
// beta and g; an earlier one z.
#include "delta.cuh"
#include "heads.cuh"
#include "overlap.cuh"

#define DELTA_OWN 128   // S of so many rows and columns is in registers
#define DELTA_CHUNK 32  // rows of a column that a lane has before the other lane's come
#define DELTA_LANES 16  // columns of a warp

// What a block has in shared memory, by row: k and q (`keys` apart), v, o and the gate (`values`
// apart), the squares of o (`squared` apart), beta, g and the norm's r; then columns of S.
struct DeltaRoom {
  float *k, *q, *v, *o, *gate, *squares, *beta, *g, *r, *cells;
  int keys, values, squared;

  __device__ __forceinline__ DeltaRoom(float* shared, int rows, int key_width, int value_width) {
    keys = (key_width + 3) / 4 * 4;
    values = (value_width + 3) / 4 * 4;
    squared = (power_of_two(value_width) + 3) / 4 * 4 + 4;
    k = shared;
    q = k + rows * keys;
    v = q + rows * keys;
    o = v + rows * values;
    gate = o + rows * values;
    squares = gate + rows * values;
    beta = squares + rows * squared;
    g = beta + rows;
    r = g + rows;
    cells = beta + (3 * rows + 3) / 4 * 4;
  }
};

// --- S in shared memory --------------------------------------------------------------------------

// Columns from .. from + width of S to rows of `tile`.
__device__ __forceinline__ void stage_columns(float* cells, const float* s, int from, int width,
                                              int key_width, int value_width, int tile) {
#pragma unroll 1
  for (int at = threadIdx.x; at < key_width * tile; at += blockDim.x) {
    const int i = (unsigned)at / (unsigned)tile, j = at - i * tile;
    if (j < width) cells[at] = s[(long long)i * value_width + from + j];
  }
}

// All rows of the column j, which is this thread's of the tile; then S goes to the state.
__device__ __forceinline__ void column_in_cells(const DeltaRoom& room, float* s, int j, int rows,
                                                int key_width, int value_width, int tile) {
  float* cell = room.cells + threadIdx.x;
#pragma unroll 1
  for (int m = 0; m < rows; ++m) {
    const float *k = room.k + m * room.keys, *q = room.q + m * room.keys, g = room.g[m];
    float mem = 0.0f, sum = 0.0f;
    // S = S * g; the sum of S * k, ascending
#pragma unroll 1
    for (int i = 0; i < key_width; ++i) {
      const float kept = __fmul_rn(cell[i * tile], g);
      cell[i * tile] = kept;
      mem = __fadd_rn(mem, __fmul_rn(kept, k[i]));
    }
    const float delta = delta_of(room.v[m * room.values + j], mem, room.beta[m]);
    // S = S + k * delta; the sum of S * q, ascending
#pragma unroll 1
    for (int i = 0; i < key_width; ++i) {
      const float made = __fadd_rn(cell[i * tile], __fmul_rn(k[i], delta));
      cell[i * tile] = made;
      sum = __fadd_rn(sum, __fmul_rn(made, q[i]));
    }
    room.o[m * room.values + j] = sum;
  }
#pragma unroll 1
  for (int i = 0; i < key_width; ++i) s[(long long)i * value_width + j] = cell[i * tile];
}

// All columns, a tile at a time.
__device__ __forceinline__ void columns_in_cells(const DeltaRoom& room, float* s, int rows,
                                                 int key_width, int value_width, int tile) {
#pragma unroll 1
  for (int from = 0; from < value_width; from += tile) {
    const int width = min(tile, value_width - from), j = from + threadIdx.x;
    stage_columns(room.cells, s, from, width, key_width, value_width, tile);
    __syncthreads();
    if (threadIdx.x < width) column_in_cells(room, s, j, rows, key_width, value_width, tile);
    __syncthreads();
  }
}

// --- S in registers ------------------------------------------------------------------------------

// Half of a column of S: every other DELTA_CHUNK of its rows. The two lanes of a column take turns in
// its sums: both go through all additions, and the sum of the one whose turn it was is kept. So no code
// is there twice, and a block is twice the threads of half the registers.
struct OwnCells {
  static const int CHUNKS = DELTA_OWN / 2 / DELTA_CHUNK;
  float s[CHUNKS * DELTA_CHUNK];

  __device__ __forceinline__ static int column() {
    return threadIdx.x / 32 * DELTA_LANES + threadIdx.x % DELTA_LANES;
  }

  // Of the first chunk; the next is 2 * DELTA_CHUNK on.
  __device__ __forceinline__ static int row() { return threadIdx.x % 32 / DELTA_LANES * DELTA_CHUNK; }

  __device__ __forceinline__ void load(const float* from) {
#pragma unroll
    for (int t = 0; t < CHUNKS; ++t)
#pragma unroll
      for (int e = 0; e < DELTA_CHUNK; ++e)
        s[t * DELTA_CHUNK + e] = from[(2 * t * DELTA_CHUNK + e) * DELTA_OWN];
  }

  __device__ __forceinline__ void store(float* to) const {
#pragma unroll
    for (int t = 0; t < CHUNKS; ++t)
#pragma unroll
      for (int e = 0; e < DELTA_CHUNK; ++e)
        to[(2 * t * DELTA_CHUNK + e) * DELTA_OWN] = s[t * DELTA_CHUNK + e];
  }

  // acc + one lane's products, then the other's, ascending, for both
  __device__ __forceinline__ static float add(float acc, const float (&made)[DELTA_CHUNK]) {
#pragma unroll 1
    for (int turn = 0; turn < 32; turn += DELTA_LANES) {
#pragma unroll
      for (int e = 0; e < DELTA_CHUNK; ++e) acc = __fadd_rn(acc, made[e]);
      acc = __shfl_sync(0xffffffffu, acc, turn + threadIdx.x % DELTA_LANES);
    }
    return acc;
  }

  // S = S * g; the sum of S * k, ascending
  __device__ __forceinline__ float recall(const float* k, float g) {
    float acc = 0.0f;
#pragma unroll
    for (int t = 0; t < CHUNKS; ++t) {
      float made[DELTA_CHUNK];
#pragma unroll
      for (int e = 0; e < DELTA_CHUNK; e += 4) {
        const float4 four = *(const float4*)(k + 2 * t * DELTA_CHUNK + e);
        const float by[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& cell = s[t * DELTA_CHUNK + e + i];
          cell = __fmul_rn(cell, g);
          made[e + i] = __fmul_rn(cell, by[i]);
        }
      }
      acc = add(acc, made);
    }
    return acc;
  }

  // S = S + k * delta; the sum of S * q, ascending
  __device__ __forceinline__ float update(const float* k, const float* q, float delta) {
    float acc = 0.0f;
#pragma unroll
    for (int t = 0; t < CHUNKS; ++t) {
      float made[DELTA_CHUNK];
#pragma unroll
      for (int e = 0; e < DELTA_CHUNK; e += 4) {
        const int at = 2 * t * DELTA_CHUNK + e;
        const float4 four = *(const float4*)(k + at), out = *(const float4*)(q + at);
        const float by[4] = {four.x, four.y, four.z, four.w};
        const float wanted[4] = {out.x, out.y, out.z, out.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& cell = s[t * DELTA_CHUNK + e + i];
          cell = __fadd_rn(cell, __fmul_rn(by[i], delta));
          made[e + i] = __fmul_rn(cell, wanted[i]);
        }
      }
      acc = add(acc, made);
    }
    return acc;
  }
};

// All rows of this thread's half of a column.
__device__ __forceinline__ void own_cells(OwnCells& cells, const DeltaRoom& room, int rows) {
  const int j = OwnCells::column(), i = OwnCells::row();
#pragma unroll 1
  for (int m = 0; m < rows; ++m) {
    const float *k = room.k + m * room.keys + i, *q = room.q + m * room.keys + i;
    const float mem = cells.recall(k, room.g[m]);
    const float delta = delta_of(room.v[m * room.values + j], mem, room.beta[m]);
    const float sum = cells.update(k, q, delta);
    if (i == 0) room.o[m * room.values + j] = sum;
  }
}

// --- before and after ----------------------------------------------------------------------------

// k, q, v, beta and g of head h of all rows.
__device__ __forceinline__ void read_rows(const DeltaRoom& room, const float* q, const float* k,
                                          const float* v, const float* beta, const float* g,
                                          int rows, int v_stride, int key_heads, int key_head,
                                          int key_width, int value_width) {
  const int h = blockIdx.x, heads = gridDim.x;
#pragma unroll 1
  for (int m = 0; m < rows; ++m) {
    const int key = (m * key_heads + key_head) * key_width;
    const float* values = v + (long long)m * v_stride + h * value_width;
#pragma unroll 1
    for (int i = threadIdx.x; i < max(key_width, value_width); i += blockDim.x) {
      const bool in_key = i < key_width, in_value = i < value_width;
      const float new_k = in_key ? k[key + i] : 0.0f, new_q = in_key ? q[key + i] : 0.0f;
      const float new_v = in_value ? values[i] : 0.0f;
      if (in_key) room.k[m * room.keys + i] = new_k, room.q[m * room.keys + i] = new_q;
      if (in_value) room.v[m * room.values + i] = new_v;
    }
    // a thread that has nothing else to read
    if (threadIdx.x == blockDim.x - 1) room.beta[m] = beta[m * heads + h], room.g[m] = g[m * heads + h];
  }
}

// silu(z) of head h of all rows.
__device__ __forceinline__ void make_gates(const DeltaRoom& room, const float* z, int variants, int rows,
                                           int value_width) {
#pragma unroll 1
  for (int m = 0; m < rows; ++m) {
    const float* from = z + ((long long)m * gridDim.x + blockIdx.x) * value_width;
#pragma unroll 1
    for (int j = threadIdx.x; j < value_width; j += blockDim.x)
      room.gate[m * room.values + j] = any_silu(from[j], variants);
  }
}

// o, and its squares.
__device__ __forceinline__ void square_rows(const DeltaRoom& room, float* o, int variants,
                                            int rows, int value_width) {
  const int n = variants & NORM_TREE ? power_of_two(value_width) : value_width;
#pragma unroll 1
  for (int m = 0; m < rows; ++m) {
    float* to = o + ((long long)m * gridDim.x + blockIdx.x) * value_width;
#pragma unroll 1
    for (int j = threadIdx.x; j < n; j += blockDim.x) {
      const float value = j < value_width ? room.o[m * room.values + j] : 0.0f;
      room.squares[m * room.squared + j] = __fmul_rn(value, value);
      if (j < value_width) to[j] = value;
    }
  }
  __syncthreads();
}

// The norm's r of every row, a thread a row: no launch has more rows than threads.
__device__ __forceinline__ void root_rows(const DeltaRoom& room, float eps, int variants, int rows,
                                          int value_width) {
  if (variants & NORM_TREE) {
    const int n = power_of_two(value_width);
#pragma unroll 1
    for (int m = 0; m < rows; ++m) tree_sum(room.squares + m * room.squared, n);
  }
  if (threadIdx.x < rows) {
    const float* squares = room.squares + threadIdx.x * room.squared;
    const float ss = variants & NORM_TREE ? squares[0] : chain_sum(squares, value_width, 0.0f);
    room.r[threadIdx.x] = mean_root(ss, value_width, eps, variants);
  }
  __syncthreads();
}

// The norm times the gate. weight: w of this thread's first column, which was asked for early.
__device__ __forceinline__ void norm_rows(const DeltaRoom& room, float* gn, const float* w, float weight,
                                          int rows, int value_width) {
#pragma unroll 1
  for (int m = 0; m < rows; ++m) {
    float* to = gn + ((long long)m * gridDim.x + blockIdx.x) * value_width;
#pragma unroll 1
    for (int j = threadIdx.x; j < value_width; j += blockDim.x) {
      const int at = m * room.values + j;
      const float by = j == threadIdx.x ? weight : w[j];
      to[j] = __fmul_rn(normed(room.o[at], room.r[m], by), room.gate[at]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) fused_delta(
    float* o, float* gn, float* s, const float* q, const float* k, const float* v,
    const float* beta, const float* g, const float* z, const float* w, float eps, int variants,
    int rows, int v_stride, int key_heads, int key_width, int value_width, int tile) {
  variants = KNOWN(variants);
  extern __shared__ float shared[];
  const DeltaRoom room(shared, rows, key_width, value_width);
  const int wide = value_width;
  const bool own = key_width == DELTA_OWN && wide == DELTA_OWN;
  s += (long long)blockIdx.x * key_width * wide;
  float* state = s + OwnCells::row() * DELTA_OWN + OwnCells::column();
  OwnCells cells;
  // S is of the step before, z of the launch before the last: both are there before it waits.
  if (own) cells.load(state);
  const float weight = threadIdx.x < wide ? w[threadIdx.x] : 0.0f;
  make_gates(room, z, variants, rows, wide);
  const int key_head = blockIdx.x / (gridDim.x / key_heads);
  wait_for_previous();
  let_next_start();
  read_rows(room, q, k, v, beta, g, rows, v_stride, key_heads, key_head, key_width, wide);
  if (own) {
    __syncthreads();
    own_cells(cells, room, rows);
    __syncthreads();
  } else {
    columns_in_cells(room, s, rows, key_width, wide, tile);
  }
  square_rows(room, o, variants, rows, wide);
  // while the norms are made: row by row beside the sums it was shorter by itself, the step longer
  if (own) cells.store(state);
  root_rows(room, eps, variants, rows, wide);
  norm_rows(room, gn, w, weight, rows, wide);
}
