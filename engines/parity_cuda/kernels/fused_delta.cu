// fused_delta: the delta rule with the gated norm behind it, in one launch: delta_step, headnorm
// (or norm_tree), silu_gate. Contract 3.2.
// Launch: grid (value heads), 128 threads, dynamic shared memory by delta.py. A block owns a head
// and a thread a column of S, `tile` columns (128 or 32) at a time, for all M rows. The launch
// before makes q, k, v, beta and g; an earlier one z.
#include "async_copy.cuh"
#include "delta.cuh"
#include "heads.cuh"
#include "overlap.cuh"

#define DELTA_AHEAD 16  // rows of S whose products are made while those before are added
#define DELTA_OWN 128  // S of so many rows and columns is in registers

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

__device__ __forceinline__ float add_ahead(float acc, const float (&made)[DELTA_AHEAD]) {
#pragma unroll
  for (int e = 0; e < DELTA_AHEAD; ++e) acc = __fadd_rn(acc, made[e]);
  return acc;
}

// --- S in shared memory --------------------------------------------------------------------------

// A column of S, element i at cell[i * PITCH], with all it is multiplied by.
template <int PITCH>
struct DeltaColumn {
  float* cell;
  const float *k, *q;
  float g, delta;

  // S = S * g; its product with k
  __device__ __forceinline__ float recall(int i) const {
    return __fmul_rn(cell[i * PITCH] = __fmul_rn(cell[i * PITCH], g), k[i]);
  }

  // S = S + k * delta; its product with q
  __device__ __forceinline__ float update(int i) const {
    const float sum = __fadd_rn(cell[i * PITCH], __fmul_rn(k[i], delta));
    return __fmul_rn(cell[i * PITCH] = sum, q[i]);
  }

  // The sum of one of the two, ascending.
  template <bool UPDATE>
  __device__ __forceinline__ float sum(int rows) const {
    const int whole = rows / DELTA_AHEAD * DELTA_AHEAD;
    float acc = 0.0f, now[DELTA_AHEAD], next[DELTA_AHEAD];
    if (whole > 0) make<UPDATE>(now, 0);
#pragma unroll 1
    for (int i = DELTA_AHEAD; i < whole; i += DELTA_AHEAD) {
      make<UPDATE>(next, i);
      acc = add_ahead(acc, now);
#pragma unroll
      for (int e = 0; e < DELTA_AHEAD; ++e) now[e] = next[e];
    }
    if (whole > 0) acc = add_ahead(acc, now);
#pragma unroll 1
    for (int i = whole; i < rows; ++i) acc = __fadd_rn(acc, UPDATE ? update(i) : recall(i));
    return acc;
  }

  template <bool UPDATE>
  __device__ __forceinline__ void make(float (&made)[DELTA_AHEAD], int i) const {
#pragma unroll
    for (int e = 0; e < DELTA_AHEAD; ++e) made[e] = UPDATE ? update(i + e) : recall(i + e);
  }
};

// Starts copying columns from .. from + width of S to rows of `tile`.
__device__ __forceinline__ void stage_columns(float* cells, const float* s, int from, int width,
                                              int key_width, int value_width, int tile) {
  s += from;
  if (width % 4 == 0 && value_width % 4 == 0 && (size_t)s % 16 == 0) {
    const int fours = width / 4;
    for (int at = threadIdx.x; at < key_width * fours; at += blockDim.x) {
      const int i = at / fours, j = at % fours * 4;
      copy_16(cells + i * tile + j, s + (long long)i * value_width + j);
    }
  } else {
    for (int at = threadIdx.x; at < key_width * width; at += blockDim.x) {
      const int i = at / width, j = at % width;
      copy_4(cells + i * tile + j, s + (long long)i * value_width + j);
    }
  }
  copy_commit();
}

// All rows of the column j, which is this thread's of the tile; then S goes to the state.
template <int PITCH>
__device__ __forceinline__ void column_in_cells(const DeltaRoom& room, float* s, int j, int rows,
                                                int key_width, int value_width) {
  DeltaColumn<PITCH> column = {room.cells + threadIdx.x, room.k, room.q, 0.0f, 0.0f};
  for (int m = 0; m < rows; ++m) {
    column.g = room.g[m];
    column.k = room.k + m * room.keys, column.q = room.q + m * room.keys;
    const float mem = column.template sum<false>(key_width);
    column.delta = delta_of(room.v[m * room.values + j], mem, room.beta[m]);
    room.o[m * room.values + j] = column.template sum<true>(key_width);
  }
  for (int i = 0; i < key_width; ++i) s[(long long)i * value_width + j] = column.cell[i * PITCH];
}

// All columns, a tile at a time; the first is on its way.
__device__ __forceinline__ void columns_in_cells(const DeltaRoom& room, float* s, int rows,
                                                 int key_width, int value_width, int tile) {
  for (int from = 0; from < value_width; from += tile) {
    const int width = min(tile, value_width - from), j = from + threadIdx.x;
    if (from > 0) stage_columns(room.cells, s, from, width, key_width, value_width, tile);
    copy_wait<0>();
    __syncthreads();
    if (threadIdx.x < width && tile == 128)
      column_in_cells<128>(room, s, j, rows, key_width, value_width);
    if (threadIdx.x < width && tile == 32)
      column_in_cells<32>(room, s, j, rows, key_width, value_width);
    __syncthreads();
  }
}

// --- S in registers ------------------------------------------------------------------------------

struct OwnColumn {
  float s[DELTA_OWN];

  __device__ __forceinline__ void load(const float* from) {
#pragma unroll
    for (int i = 0; i < DELTA_OWN; ++i) s[i] = from[i * DELTA_OWN];
  }

  __device__ __forceinline__ void store(float* to) const {
#pragma unroll
    for (int i = 0; i < DELTA_OWN; ++i) to[i * DELTA_OWN] = s[i];
  }

  // S = S * g; the sum of S * k, ascending
  __device__ __forceinline__ float recall(const float* k, float g) {
    float acc = 0.0f;
#pragma unroll
    for (int i = 0; i < DELTA_OWN; i += 4) {
      if (i % DELTA_AHEAD == 0) __syncwarp();
      const float4 by = *(const float4*)(k + i);
      const float each[4] = {by.x, by.y, by.z, by.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[i + e] = __fmul_rn(s[i + e], g);
        acc = __fadd_rn(acc, __fmul_rn(s[i + e], each[e]));
      }
    }
    return acc;
  }

  // S = S + k * delta; the sum of S * q, ascending
  __device__ __forceinline__ float update(const float* k, const float* q, float delta) {
    float acc = 0.0f;
#pragma unroll
    for (int i = 0; i < DELTA_OWN; i += 4) {
      if (i % DELTA_AHEAD == 0) __syncwarp();
      const float4 by = *(const float4*)(k + i), to = *(const float4*)(q + i);
      const float each[4] = {by.x, by.y, by.z, by.w}, out[4] = {to.x, to.y, to.z, to.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[i + e] = __fadd_rn(s[i + e], __fmul_rn(each[e], delta));
        acc = __fadd_rn(acc, __fmul_rn(s[i + e], out[e]));
      }
    }
    return acc;
  }
};

// All rows of this thread's column.
__device__ __forceinline__ void own_column(OwnColumn& column, const DeltaRoom& room, int rows) {
  const int j = threadIdx.x;
#pragma unroll 1
  for (int m = 0; m < rows; ++m) {
    const float *k = room.k + m * room.keys, *q = room.q + m * room.keys;
    const float mem = column.recall(k, room.g[m]);
    const float delta = delta_of(room.v[m * room.values + j], mem, room.beta[m]);
    room.o[m * room.values + j] = column.update(k, q, delta);
  }
}

// --- before and after ----------------------------------------------------------------------------

// k, q, v, beta and g of head h of all rows.
__device__ __forceinline__ void read_rows(const DeltaRoom& room, const float* q, const float* k,
                                          const float* v, const float* beta, const float* g,
                                          int rows, int v_stride, int key_heads, int key_width,
                                          int value_width) {
  const int h = blockIdx.x, heads = gridDim.x, key_head = h / (heads / key_heads);
  for (int m = 0; m < rows; ++m) {
    const int key = (m * key_heads + key_head) * key_width;
    for (int i = threadIdx.x; i < key_width; i += blockDim.x) {
      room.k[m * room.keys + i] = k[key + i];
      room.q[m * room.keys + i] = q[key + i];
    }
    const float* values = v + (long long)m * v_stride + h * value_width;
    for (int j = threadIdx.x; j < value_width; j += blockDim.x)
      room.v[m * room.values + j] = values[j];
    if (threadIdx.x == 0) room.beta[m] = beta[m * heads + h], room.g[m] = g[m * heads + h];
  }
}

// o, and its squares.
__device__ __forceinline__ void square_rows(const DeltaRoom& room, float* o, int variants,
                                            int rows, int value_width) {
  const int n = variants & NORM_TREE ? power_of_two(value_width) : value_width;
  for (int m = 0; m < rows; ++m) {
    float* to = o + ((long long)m * gridDim.x + blockIdx.x) * value_width;
    for (int j = threadIdx.x; j < n; j += blockDim.x) {
      const float value = j < value_width ? room.o[m * room.values + j] : 0.0f;
      room.squares[m * room.squared + j] = __fmul_rn(value, value);
      if (j < value_width) to[j] = value;
    }
  }
  __syncthreads();
}

// The norm's r of every row, a thread a row.
__device__ __forceinline__ void root_rows(const DeltaRoom& room, float eps, int variants, int rows,
                                          int value_width) {
  if (variants & NORM_TREE) {
    const int n = power_of_two(value_width);
    for (int m = 0; m < rows; ++m) tree_sum(room.squares + m * room.squared, n);
  }
  for (int m = threadIdx.x; m < rows; m += blockDim.x) {
    const float* squares = room.squares + m * room.squared;
    const float ss = variants & NORM_TREE ? squares[0] : chain_sum(squares, value_width, 0.0f);
    room.r[m] = mean_root(ss, value_width, eps, variants);
  }
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(128) fused_delta(
    float* o, float* gn, float* s, const float* q, const float* k, const float* v,
    const float* beta, const float* g, const float* z, const float* w, float eps, int variants,
    int rows, int v_stride, int key_heads, int key_width, int value_width, int tile) {
  variants = KNOWN(variants);
  extern __shared__ float shared[];
  const DeltaRoom room(shared, rows, key_width, value_width);
  const int h = blockIdx.x, heads = gridDim.x, wide = value_width;
  const bool own = key_width == DELTA_OWN && wide == DELTA_OWN;
  s += (long long)h * key_width * wide;
  OwnColumn column;
  // S is of the step before, z of the launch before the last: both are there before it waits.
  if (own) column.load(s + threadIdx.x);
  if (!own) stage_columns(room.cells, s, 0, min(tile, wide), key_width, wide, tile);
  const float weight = threadIdx.x < wide ? w[threadIdx.x] : 0.0f;
  for (int m = 0; m < rows; ++m)
    for (int j = threadIdx.x; j < wide; j += blockDim.x)
      room.gate[m * room.values + j] = any_silu(z[((long long)m * heads + h) * wide + j], variants);
  wait_for_previous();
  let_next_start();
  read_rows(room, q, k, v, beta, g, rows, v_stride, key_heads, key_width, wide);
  if (own) {
    __syncthreads();
    own_column(column, room, rows);
    __syncthreads();
  } else {
    columns_in_cells(room, s, rows, key_width, wide, tile);
  }
  square_rows(room, o, variants, rows, wide);
  // S in registers goes to the state while the first warp makes the norms, the first warp's after.
  if (own && threadIdx.x >= 32) column.store(s + threadIdx.x);
  root_rows(room, eps, variants, rows, wide);
  for (int m = 0; m < rows; ++m)
    for (int j = threadIdx.x; j < wide; j += blockDim.x) {
      const int at = m * room.values + j;
      const float by = j == threadIdx.x ? weight : w[j];
      gn[((long long)m * heads + h) * wide + j] =
          __fmul_rn(normed(room.o[at], room.r[m], by), room.gate[at]);
    }
  if (own && threadIdx.x < 32) column.store(s + threadIdx.x);
}
