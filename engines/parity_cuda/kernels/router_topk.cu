// router_topk: softmax over all experts, then the k most probable. Contract 2 (FFN).
// Launch: grid (M), one thread; dynamic shared memory: E floats. One row a block, so M cannot
// change the order.
#include "variants.cuh"

extern "C" __global__ void router_topk(int* ids, float* probs, const float* logits, int norm,
                                       int variants, int experts, int ranks) {
  extern __shared__ float soft[];
  logits += (long long)blockIdx.x * experts;
  ids += (long long)blockIdx.x * ranks;
  probs += (long long)blockIdx.x * ranks;
  // step 1: maximum, any order
  float top = logits[0];
  for (int i = 1; i < experts; ++i) top = logits[i] > top ? logits[i] : top;
  // step 2: exponentials and their sum, ascending
  float total = 0.0f;
  for (int i = 0; i < experts; ++i) {
    soft[i] = any_expf(__fsub_rn(logits[i], top), variants);
    total = __fadd_rn(total, soft[i]);
  }
  // step 3: probabilities
  for (int i = 0; i < experts; ++i) soft[i] = __fdiv_rn(soft[i], total);
  // step 4: the k largest, ties to the lower id; a chosen one is marked with -1
  float chosen = 0.0f;
  for (int r = 0; r < ranks; ++r) {
    int best = 0;
    for (int i = 1; i < experts; ++i) best = soft[i] > soft[best] ? i : best;
    ids[r] = best;
    probs[r] = soft[best];
    chosen = __fadd_rn(chosen, soft[best]);
    soft[best] = -1.0f;
  }
  // step 5: divide by the sum over the ranks
  if (norm)
    for (int r = 0; r < ranks; ++r) probs[r] = __fdiv_rn(probs[r], chosen);
}
