// attention: what the attention ops of both storages share. Contract 1.8, 5.
// One block of TILE threads per (head, row) walks the keys in tiles: scores in parallel, the chain
// of maxima and sums by one thread, the accumulators one thread each. With two_pass the scores of
// all keys go to scratch first. A Keys type gives score(t) and value(t, j, p), a key's
// contribution to dimension j.
#pragma once
#include "tree.cuh"
#include "variants.cuh"

#define TILE 32

// One tile of weights and corrections; the running maximum and sum of the keys before it.
struct Chain {
  float score[TILE];
  float correction[TILE];
  float best;
  float total;
};

// The keys from .. from + count - 1 of one head, by one thread. Keys ascending.
__device__ __forceinline__ void online_softmax(Chain& chain, int from, int count, int variants) {
  for (int t = 0; t < count; ++t) {
    const float s = chain.score[t];
    float top = s, c = 0.0f, p = 1.0f;
    // step 2: running maximum, correction, weight; the first key by definition
    if (from + t > 0) {
      top = s > chain.best ? s : chain.best;
      c = any_expf(__fsub_rn(chain.best, top), variants);
      p = any_expf(__fsub_rn(s, top), variants);
    }
    chain.best = top;
    chain.correction[t] = c;
    chain.score[t] = p;
    // step 3: l = l * c + p
    chain.total = __fadd_rn(__fmul_rn(chain.total, c), p);
  }
}

// The same with the maximum first: p = expf(s - max) into weights, l = tree of p, no correction.
// scratch: 2 * power_of_two(keys) floats of this (head, row).
template <class Keys>
__device__ float two_pass_softmax(const Keys& head, float* scratch, int keys, int variants) {
  const int n = power_of_two(keys), lane = threadIdx.x;
  float* part = scratch + n;
  for (int t = lane; t < keys; t += TILE) scratch[t] = head.score(t);
  __syncthreads();
  // step 2: maximum, any order, then weights
  float top = scratch[0];
  for (int t = 1; t < keys; ++t) top = scratch[t] > top ? scratch[t] : top;
  __syncthreads();
  for (int t = lane; t < n; t += TILE) {
    const float p = t < keys ? any_expf(__fsub_rn(scratch[t], top), variants) : 0.0f;
    if (t < keys) scratch[t] = p;
    part[t] = p;
  }
  __syncthreads();
  // step 3: l by tree
  return tree_sum(part, n);
}

// Add count keys with their weights and corrections to the accumulators.
template <class Keys>
__device__ __forceinline__ void accumulate(const Keys& head, float* acc, int hd, int from,
                                           int count, const float* weight,
                                           const float* correction) {
  for (int j = threadIdx.x; j < hd; j += TILE) {
    float a = acc[j];
    for (int t = 0; t < count; ++t) {
      const float c = correction ? correction[t] : 1.0f;
      a = __fadd_rn(__fmul_rn(a, c), head.value(from + t, j, weight[t]));
    }
    acc[j] = a;
  }
}

// out: (hd,) of this (head, row); acc: hd floats of shared memory.
template <class Keys>
__device__ __forceinline__ void attend(float* out, const Keys& head, float* acc, Chain& chain,
                                       float* scratch, int keys, int hd, int variants) {
  const int lane = threadIdx.x;
  for (int j = lane; j < hd; j += TILE) acc[j] = 0.0f;
  float total = 0.0f;
  if (variants & TWO_PASS) {
    total = two_pass_softmax(head, scratch, keys, variants);
    accumulate(head, acc, hd, 0, keys, scratch, (const float*)nullptr);
  } else {
    if (lane == 0) chain.total = 0.0f;
    for (int from = 0; from < keys; from += TILE) {
      const int count = min(TILE, keys - from);
      if (lane < count) chain.score[lane] = head.score(from + lane);
      __syncthreads();
      if (lane == 0) online_softmax(chain, from, count, variants);
      __syncthreads();
      accumulate(head, acc, hd, from, count, chain.score, chain.correction);
      __syncthreads();
    }
    total = chain.total;
  }
  // step 5: acc / l
  for (int j = lane; j < hd; j += TILE) out[j] = __fdiv_rn(acc[j], total);
}
