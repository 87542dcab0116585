// router_topk: softmax over all experts, then the k most probable. Contract 2 (FFN).
// Launch: grid (M), one warp; dynamic shared memory: E floats. One row a block, so M cannot change
// the order; a lane takes every 32nd expert.
#include "chain.cuh"
#include "warp.cuh"

// The first of the largest of soft; every lane has it.
__device__ __forceinline__ int first_largest(const float* soft, int experts) {
  int best = threadIdx.x;
  float top = best < experts ? soft[best] : -2.0f;
  for (int i = threadIdx.x + 32; i < experts; i += 32)
    if (soft[i] > top) best = i, top = soft[i];
#pragma unroll
  for (int by = 16; by > 0; by /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, top, by);
    const int id = __shfl_xor_sync(0xffffffffu, best, by);
    if (other > top || (other == top && id < best)) best = id, top = other;
  }
  return min(__shfl_sync(0xffffffffu, best, 0), experts - 1);  // a NaN must not point outside
}

extern "C" __global__ void router_topk(int* ids, float* probs, const float* logits, int norm,
                                       int variants, int experts, int ranks) {
  extern __shared__ float soft[];
  const int lane = threadIdx.x;
  logits += (long long)blockIdx.x * experts;
  ids += (long long)blockIdx.x * ranks;
  probs += (long long)blockIdx.x * ranks;
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
  // step 4: the k largest, ties to the lower id; a chosen one is marked with -1
  float chosen = 0.0f;
  for (int r = 0; r < ranks; ++r) {
    const int best = first_largest(soft, experts);
    const float p = soft[best];
    __syncwarp();
    if (lane == 0) {
      ids[r] = best;
      probs[r] = p;
      soft[best] = -1.0f;
    }
    __syncwarp();
    chosen = __fadd_rn(chosen, p);
  }
  // step 5: divide by the sum over the ranks
  if (norm)
    for (int r = lane; r < ranks; r += 32) probs[r] = __fdiv_rn(probs[r], chosen);
}
