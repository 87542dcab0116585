// topk: the chosen experts of a row, by one warp. Contract 2 (FFN).
// Every lane of the warp must call these.
#pragma once
#include "chain.cuh"
#include "warp.cuh"

// soft: the probabilities of all experts, in shared memory at a multiple of 16 bytes.
__device__ __forceinline__ void softmax(float* soft, const float* logits, int variants,
                                        int experts) {
  const int lane = threadIdx.x % 32;
  // step 1: maximum, any order
  float top = logits[0];
  for (int i = lane; i < experts; i += 32) top = logits[i] > top ? logits[i] : top;
  top = warp_max(top);
  // step 2: exponentials and their sum, ascending
  for (int i = lane; i < experts; i += 32) soft[i] = any_expf(__fsub_rn(logits[i], top), variants);
  __syncwarp();
  const float total = chain_sum(soft, experts, 0.0f);
  __syncwarp();
  // step 3: probabilities
  for (int i = lane; i < experts; i += 32) soft[i] = __fdiv_rn(soft[i], total);
  __syncwarp();
}

// The first of the largest of soft; every lane has it.
__device__ __forceinline__ int first_largest(const float* soft, int experts) {
  int best = threadIdx.x % 32;
  float top = best < experts ? soft[best] : -2.0f;
  for (int i = threadIdx.x % 32 + 32; i < experts; i += 32)
    if (soft[i] > top) best = i, top = soft[i];
#pragma unroll
  for (int by = 16; by > 0; by /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, top, by);
    const int id = __shfl_xor_sync(0xffffffffu, best, by);
    if (other > top || (other == top && id < best)) best = id, top = other;
  }
  return min(__shfl_sync(0xffffffffu, best, 0), experts - 1);  // a NaN must not point outside
}

// The k largest of soft; their sum by rank.
__device__ __forceinline__ float choose(int* ids, float* probs, float* soft, int experts,
                                        int ranks) {
  // step 4: the k largest, ties to the lower id; a chosen one is marked with -1
  float chosen = 0.0f;
  for (int r = 0; r < ranks; ++r) {
    const int best = first_largest(soft, experts);
    const float p = soft[best];
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      ids[r] = best;
      probs[r] = p;
      soft[best] = -1.0f;
    }
    __syncwarp();
    chosen = __fadd_rn(chosen, p);
  }
  return chosen;
}

// Divides by the sum over the ranks.
__device__ __forceinline__ void share(float* probs, float chosen, int ranks) {
  // step 5: the division
  for (int r = threadIdx.x % 32; r < ranks; r += 32) probs[r] = __fdiv_rn(probs[r], chosen);
}

// --- a guess, and whether it is right -----------------------------------------------------------

// Integers in the order of floats; NaNs have a place too, so that every expert has a rank.
__device__ __forceinline__ int order_key(float x) {
  const int bits = __float_as_int(x);
  return bits ^ (bits >> 31 & 0x7fffffff);
}

// ids[r]: the expert with the r-th largest logit, ties to the lower id, by the whole block. Their
// probabilities may tie where logits do not, and the logits may be of another order: a guess. keys:
// a word for each expert, rounded up to four, at a multiple of 16 bytes. A barrier must follow.
__device__ __forceinline__ void guess_experts(int* ids, int* keys, const float* logits, int experts,
                                              int ranks) {
  const int padded = (experts + 3) / 4 * 4;
  for (int i = threadIdx.x; i < padded; i += blockDim.x)
    keys[i] = i < experts ? order_key(__fadd_rn(logits[i], 0.0f)) : (int)0x80000000;
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    const int mine = keys[e];
    int before = 0, j = 0;
#pragma unroll 4
    for (; j + 4 <= e; j += 4) {
      const int4 k = *(const int4*)(keys + j);
      before += (k.x >= mine) + (k.y >= mine) + (k.z >= mine) + (k.w >= mine);
    }
    for (const int end = j + 4; j < end; ++j) before += j < e ? keys[j] >= mine : keys[j] > mine;
#pragma unroll 4
    for (; j < padded; j += 4) {
      const int4 k = *(const int4*)(keys + j);
      before += (k.x > mine) + (k.y > mine) + (k.z > mine) + (k.w > mine);
    }
    if (before < ranks) ids[before] = e;
  }
}

// Whether ids are the k largest of soft in the order that `choose` gives them. What it asks is
// false for a NaN.
__device__ __forceinline__ bool certified(const int* ids, const float* soft, int experts,
                                          int ranks) {
  const int lane = threadIdx.x % 32, last = ids[ranks - 1];
  bool right = true;
  // step 1: each rank is ahead of the next
  for (int r = lane; r + 1 < ranks; r += 32) {
    const float p = soft[ids[r]], next = soft[ids[r + 1]];
    right = right && (p > next || (p == next && ids[r] < ids[r + 1]));
  }
  // step 2: the last one is ahead of all that are no rank's
  const float least = soft[last];
  int ahead = 0;
  for (int i = lane; i < experts; i += 32) ahead += soft[i] > least || (soft[i] == least && i < last);
#pragma unroll
  for (int by = 16; by > 0; by /= 2) ahead += __shfl_xor_sync(0xffffffffu, ahead, by);
  return __all_sync(0xffffffffu, right && least == least) && ahead == ranks - 1;
}
