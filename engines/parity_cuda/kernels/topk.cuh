// topk: the chosen experts of a row, by one warp. Contract 2 (FFN).
// Every lane of the warp must call these.
#pragma once
#include "chain.cuh"
#include "warp.cuh"

// Of four values, which wait for each other's steps only where a variant asks for another function.
__device__ __forceinline__ void any_expfs(float (&x)[4], int variants) {
  if (variants & (LIBM_EXP | EXP_VIA_DOUBLE)) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = any_expf(x[i], variants);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = ucrt_expf(x[i]);
  }
}

// soft: the probabilities of all experts, in shared memory at a multiple of 16 bytes.
__device__ __forceinline__ void softmax(float* soft, const float* logits, int variants,
                                        int experts) {
  const int lane = threadIdx.x % 32;
  // step 1: maximum, any order
  float top = logits[0];
#pragma unroll 1
  for (int from = lane; from < experts; from += 128) {
    float four[4];  // they come together
#pragma unroll
    for (int i = 0; i < 4; ++i)
      four[i] = from + 32 * i < experts ? logits[from + 32 * i] : logits[0];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (from + 32 * i < experts) soft[from + 32 * i] = four[i];
      top = four[i] > top ? four[i] : top;
    }
  }
  top = warp_max(top);
  // step 2: exponentials and their sum, ascending
#pragma unroll 1
  for (int from = lane; from < experts; from += 128) {
    float four[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      four[i] = from + 32 * i < experts ? __fsub_rn(soft[from + 32 * i], top) : 0.0f;
    any_expfs(four, variants);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (from + 32 * i < experts) soft[from + 32 * i] = four[i];
  }
  __syncwarp();
  const float total = chain_sum(soft, experts, 0.0f);
  __syncwarp();
  // step 3: probabilities
#pragma unroll 1
  for (int from = lane; from < experts; from += 128) {
#pragma unroll
    for (int i = from; i < from + 128; i += 32)
      if (i < experts) soft[i] = __fdiv_rn(soft[i], total);
  }
  __syncwarp();
}

// The first of the largest of soft; every lane has it.
__device__ __forceinline__ int first_largest(const float* soft, int experts) {
  int best = threadIdx.x % 32;
  float top = best < experts ? soft[best] : -2.0f;
#pragma unroll 1
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
#pragma unroll 1
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
#pragma unroll 1
  for (int r = threadIdx.x % 32; r < ranks; r += 32) probs[r] = __fdiv_rn(probs[r], chosen);
}

// --- a guess, and whether it is right -----------------------------------------------------------

// How many are true. A comparison that gives a float is cheaper than one that gives an integer.
__device__ __forceinline__ float four_of(bool a, bool b, bool c, bool d) {
  return __fadd_rn(__fadd_rn(a ? 1.0f : 0.0f, b ? 1.0f : 0.0f),
                   __fadd_rn(c ? 1.0f : 0.0f, d ? 1.0f : 0.0f));
}

// The largest float that is less, of a finite one.
__device__ __forceinline__ float next_below(float x) {
  const int bits = __float_as_int(x);
  if (x == 0.0f) return __int_as_float(0x80000001);
  return __int_as_float(bits < 0 ? bits + 1 : bits - 1);
}

// ids[r]: the expert with the r-th largest logit, ties to the lower id, by the whole block. Their
// probabilities may tie where logits do not, and the logits may be of another order: a guess. What is
// not finite has a place too, so that every rank has an expert. keys: a float for each expert, rounded
// up to eight, at a multiple of 16 bytes. The logits may be of a launch that this one has not waited
// for, so they are not asked of the first cache. A barrier must follow.
__device__ __forceinline__ void guess_experts(int* ids, float* keys, const float* logits,
                                              int experts, int ranks) {
  const float most = __int_as_float(0x7f7fffff), infinite = __int_as_float(0x7f800000);
  const int padded = (experts + 7) / 8 * 8;
#pragma unroll 1
  for (int i = threadIdx.x; i < padded; i += blockDim.x) {
    const float logit = i < experts ? __ldcg(logits + i) : 0.0f;
    keys[i] = i < experts ? fminf(fmaxf(logit, -most), most) : -infinite;
  }
  __syncthreads();
  // two threads an expert, each with every other four keys
#pragma unroll 1
  for (int at = threadIdx.x; at / 32 * 32 < 2 * experts; at += blockDim.x) {
    const int e = at / 2, own = min(e, experts - 1) / 4 * 4;
    const float mine = keys[min(e, experts - 1)], below = next_below(mine);
    float before = 0.0f;
#pragma unroll 4
    for (int j = at % 2 * 4; j < padded; j += 8) {
      const float4 k = *(const float4*)(keys + j);
      const float less = j < own ? below : mine;  // an equal one is ahead where its id is lower
      before = __fadd_rn(before, four_of(k.x > less, k.y > less, k.z > less, k.w > less));
    }
#pragma unroll
    for (int i = 0; i < 3; ++i)
      if (at % 2 == 0 && own + i < e && keys[own + i] == mine) before = __fadd_rn(before, 1.0f);
    before = __fadd_rn(before, __shfl_xor_sync(0xffffffffu, before, 1));
    if (at % 2 == 0 && e < experts && before < ranks) ids[(int)before] = e;
  }
}

// Whether ids are the k largest of soft in the order that `choose` gives them. What it asks is
// false for a NaN.
__device__ __forceinline__ bool certified(const int* ids, const float* soft, int experts,
                                          int ranks) {
  const int lane = threadIdx.x % 32, last = ids[ranks - 1];
  bool right = true;
  // step 1: each rank is ahead of the next
#pragma unroll 1
  for (int r = lane; r + 1 < ranks; r += 32) {
    const float p = soft[ids[r]], next = soft[ids[r + 1]];
    right = right && (p > next || (p == next && ids[r] < ids[r + 1]));
  }
  // step 2: the last one is ahead of all that are no rank's
  const float least = soft[last];
  int ahead = 0;
#pragma unroll 1
  for (int from = 0; from < experts; from += 128) {
#pragma unroll
    for (int i = 0; i < 128; i += 32) {
      const int e = from + i + lane;
      const float p = e < experts ? soft[e] : -1.0f;
      ahead += __popc(__ballot_sync(0xffffffffu, p > least || (p == least && e < last)));
    }
  }
  return __all_sync(0xffffffffu, right && least == least) && ahead == ranks - 1;
}
