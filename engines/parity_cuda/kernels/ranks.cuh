// ranks: the experts' outputs of one element, by rank. Contract 2 (FFN).
#pragma once
#include "variants.cuh"

// ffn = ffn + p * down in rank order; down: of rank 0, the next ranks `stride` apart.
__device__ __forceinline__ float ranks_sum(const float* down, long long stride, const float* probs,
                                           int ranks, int variants) {
  float ffn = 0.0f;
#pragma unroll 8
  for (int r = 0; r < ranks; ++r) {
    float term = down[r * stride];
    if (!(variants & FOLD_P)) term = __fmul_rn(probs[r], term);
    ffn = __fadd_rn(ffn, term);
  }
  return ffn;
}

// ffn + gs * sh: the shared expert's, after the chosen ones
__device__ __forceinline__ float with_shared(float ffn, float gs, float sh) {
  return __fadd_rn(ffn, __fmul_rn(gs, sh));
}
