// heads: the steps of a head of Q, K or V, element by element. Contract 1.2, 1.6, 1.7.
#pragma once
#include "chain.cuh"
#include "cos_sin.cuh"
#include "tree.cuh"
#include "warp.cuh"

// 1 / root of a mean square, from the sum ss of d squares: mean, root, reciprocal, each rounded.
__device__ __forceinline__ float mean_root(float ss, int d, float eps, int variants) {
  return inverse_root(__fadd_rn(__fdiv_rn(ss, (float)d), eps), variants);
}

// (x * r) * w
__device__ __forceinline__ float normed(float x, float r, float w) {
  return __fmul_rn(__fmul_rn(x, r), w);
}

__device__ __forceinline__ float angle_of(int place, float inv_freq) {
  return __fmul_rn((float)place, inv_freq);
}

// The first and the second of a pair after the rotation, each operation rounded.
__device__ __forceinline__ float turned_first(float x1, float x2, float c, float s) {
  return __fsub_rn(__fmul_rn(x1, c), __fmul_rn(x2, s));
}

__device__ __forceinline__ float turned_second(float x1, float x2, float c, float s) {
  return __fadd_rn(__fmul_rn(x2, c), __fmul_rn(x1, s));
}

// x in units of s, rounded to even and clamped as float; a zero scale gives 0.
__device__ __forceinline__ signed char quantised(float x, float s, int variants) {
  float t = 0.0f;
  if (!zero_scale(s, variants)) {
    t = rintf(quotient(x, s, variants));
    t = fminf(fmaxf(t, -127.0f), 127.0f);
  }
  return (signed char)__float2int_rz(t);
}

// --- a block a head, a thread an element (blockDim at least hd, whole warps) --------------------

// Sum of the squares of the block's x, which every thread adds by itself: it would wait longer for one
// that did; part: power_of_two(hd) floats and no fewer than 4, at a multiple of 16 bytes. The block has
// no barrier behind it that part needs.
__device__ __forceinline__ float head_squares(float x, float* part, int variants, int hd) {
  const int j = threadIdx.x;
  if (j < hd) part[j] = __fmul_rn(x, x);
  if (variants & NORM_TREE) {
    const int n = power_of_two(hd);
    for (int i = hd + j; i < n; i += blockDim.x) part[i] = 0.0f;
    __syncthreads();
    return tree_sum(part, n);
  }
  __syncthreads();
  return chain_sum(part, hd, 0.0f);
}

// The largest magnitude of the block's x, for every thread.
__device__ __forceinline__ float head_largest(float x) {
  __shared__ __align__(16) float shared_largest[36];
  const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
  const float mine = warp_largest(fmaxf(0.0f, fabsf(x)));
  if (lane == 0) shared_largest[threadIdx.x / 32] = mine;
  if (threadIdx.x < 4) shared_largest[warps + threadIdx.x] = 0.0f;  // four at a time
  __syncthreads();
  float amax = 0.0f;
#pragma unroll 1
  for (int warp = 0; warp < warps; warp += 4) {
    const float4 of = *(const float4*)(shared_largest + warp);
    amax = fmaxf(amax, fmaxf(fmaxf(of.x, of.y), fmaxf(of.z, of.w)));
  }
  return amax;
}

// What a thread needs of a head before the head is there: its own weight and its partner's in the
// pair, and the pair's angle.
struct Turn {
  float w, other_w, c, s;
  int other;  // the partner, or the element itself where it passes unchanged

  __device__ void prepare(const float* weight, const float* inv_freq, int place, int variants,
                          int half, int hd) {
    const int j = threadIdx.x;
    other = j;
    w = other_w = c = s = 0.0f;
    if (j >= hd) return;
    if (j < 2 * half) other = j < half ? j + half : j - half;
    w = weight[j], other_w = weight[other];
    if (other == j) return;
    const float angle = angle_of(place, inv_freq[min(j, other)]);
    const CosSin turn = any_cos_sin(angle, variants);
    c = turn.c, s = turn.s;
  }

  // The element after the rotation: own is its normed value, of the partner there is x.
  __device__ float apply(float own, float other_x, float r) const {
    const int j = threadIdx.x;
    if (other == j) return own;
    const float theirs = normed(other_x, r, other_w);
    return j < other ? turned_first(own, theirs, c, s) : turned_second(theirs, own, c, s);
  }
};
