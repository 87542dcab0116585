// embed_f32: rows of an f32 embedding. Contract 1.0.
// Launch: grid (blocks over hidden, M), one thread an element. As embed, the first of a step.
#include "overlap.cuh"

extern "C" __global__ void embed_f32(float* out, const float* w, const int* tokens, int hidden) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y;
  wait_for_previous();
  let_next_start();
  if (j >= hidden) return;
  // step 1: the stored row
  out[(long long)m * hidden + j] = w[(long long)tokens[m] * hidden + j];
}
