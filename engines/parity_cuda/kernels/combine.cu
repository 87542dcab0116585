// combine: the experts' outputs by rank, then the residual. Contract 2 (FFN).
// Launch: grid (blocks over hidden, M), one thread an element, so M cannot change the order.

extern "C" __global__ void combine(float* out, const float* ores, const float* down,
                                   const float* probs, int hidden, int ranks) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y;
  if (j >= hidden) return;
  // step 1: ffn = ffn + p * down, in rank order
  float ffn = 0.0f;
  for (int r = 0; r < ranks; ++r) {
    const long long row = (long long)m * ranks + r;
    ffn = __fadd_rn(ffn, __fmul_rn(probs[row], down[row * hidden + j]));
  }
  const long long at = (long long)m * hidden + j;
  // step 2: x = ores + ffn
  out[at] = __fadd_rn(ores[at], ffn);
}
