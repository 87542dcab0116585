// delta_step: one step of the gated delta rule. Contract 3.2.
// Launch: grid (blocks over vd, vh), block (COLUMNS, any y), dynamic shared memory: 2 * kd *
// COLUMNS floats; rows follow each other in launches. A block keeps COLUMNS columns of S in shared
// memory, so S is read and written once; one thread a column walks its two chains. Value head h
// uses key head h / (vh / kh).
#include "delta.cuh"

#define COLUMNS 16
#define WALK 8  // rows that are loaded before the first is used

// The sum of cell[i * COLUMNS], ascending.
__device__ __forceinline__ float column_sum(const float* cell, int rows) {
  float acc = 0.0f, one[WALK], other[WALK];
  const int whole = rows / (2 * WALK) * 2 * WALK;
  if (whole > 0)
#pragma unroll
    for (int e = 0; e < WALK; ++e) one[e] = cell[e * COLUMNS];
#pragma unroll 1
  for (int i = 0; i < whole; i += 2 * WALK) {
    const int next = min(i + 2 * WALK, whole - WALK);
#pragma unroll
    for (int e = 0; e < WALK; ++e) other[e] = cell[(i + WALK + e) * COLUMNS];
#pragma unroll
    for (int e = 0; e < WALK; ++e) acc = __fadd_rn(acc, one[e]);
#pragma unroll
    for (int e = 0; e < WALK; ++e) one[e] = cell[(next + e) * COLUMNS];
#pragma unroll
    for (int e = 0; e < WALK; ++e) acc = __fadd_rn(acc, other[e]);
  }
  for (int i = whole; i < rows; ++i) acc = __fadd_rn(acc, cell[i * COLUMNS]);
  return acc;
}

extern "C" __global__ void delta_step(float* o, float* s, const float* q, const float* k,
                                      const float* v, const float* beta, const float* g,
                                      int key_heads, int key_width, int value_width) {
  extern __shared__ float cells[];
  __shared__ float shared_delta[COLUMNS];
  const int column = threadIdx.x, j = blockIdx.x * COLUMNS + column;
  const int h = blockIdx.y;
  const bool there = j < value_width;
  const int at = h / (gridDim.y / key_heads);
  float *cell = cells + column, *product = cell + key_width * COLUMNS;
  s += (long long)h * key_width * value_width + j;
  q += at * key_width;
  k += at * key_width;
  // step 1: S = S * g; mem = sum of S * k, ascending
  for (int from = threadIdx.y; from < key_width && there; from += WALK * blockDim.y) {
    float held[WALK];
#pragma unroll
    for (int e = 0; e < WALK; ++e) {
      const int i = from + e * blockDim.y;
      held[e] = i < key_width ? s[(long long)i * value_width] : 0.0f;
    }
#pragma unroll
    for (int e = 0; e < WALK; ++e) {
      const int i = from + e * blockDim.y;
      if (i >= key_width) break;
      cell[i * COLUMNS] = __fmul_rn(held[e], g[h]);
      product[i * COLUMNS] = __fmul_rn(cell[i * COLUMNS], k[i]);
    }
  }
  __syncthreads();
  if (threadIdx.y == 0 && there) {
    const float mem = column_sum(product, key_width);
    // step 2: delta = (v - mem) * beta
    shared_delta[column] = delta_of(v[h * value_width + j], mem, beta[h]);
  }
  __syncthreads();
  // step 3: S = S + k * delta; o = sum of S * q, ascending
  for (int i = threadIdx.y; i < key_width && there; i += blockDim.y) {
    const float sum = __fadd_rn(cell[i * COLUMNS], __fmul_rn(k[i], shared_delta[column]));
    s[(long long)i * value_width] = sum;
    product[i * COLUMNS] = __fmul_rn(sum, q[i]);
  }
  __syncthreads();
  if (threadIdx.y == 0 && there) o[h * value_width + j] = column_sum(product, key_width);
}
