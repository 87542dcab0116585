// router_topk: softmax over all experts, then the k most probable. Contract 2 (FFN).
// Launch: grid (M), one warp; dynamic shared memory: E floats. One row a block, so M cannot change
// the order; a lane takes every 32nd expert.
#include "topk.cuh"

extern "C" __global__ void router_topk(int* ids, float* probs, const float* logits, int norm,
                                       int variants, int experts, int ranks) {
  extern __shared__ float soft[];
  ids += (long long)blockIdx.x * ranks;
  probs += (long long)blockIdx.x * ranks;
  // step 1: maximum, any order
  // step 2: exponentials and their sum, ascending
  // step 3: probabilities
  softmax(soft, logits + (long long)blockIdx.x * experts, variants, experts);
  // step 4: the k largest, ties to the lower id; a chosen one is marked with -1
  const float chosen = choose(ids, probs, soft, experts, ranks);
  // step 5: divide by the sum over the ranks
  if (norm) share(probs, chosen, ranks);
}
