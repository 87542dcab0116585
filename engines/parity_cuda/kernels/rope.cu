// rope: rotary embedding, pairs (i, i + rot/2). Contract 1.7.
// Launch: grid (heads, M), one thread an element or pair in turn. Row m stands at pos[0] + m; every
// element is computed by itself, so neither heads nor M can change anything.
#include "heads.cuh"

extern "C" __global__ void rope(float* out, const float* x, const float* inv_freq,
                                const int* pos, int variants, int half, int hd) {
  const int m = blockIdx.y;
  const long long at = ((long long)m * gridDim.x + blockIdx.x) * hd;
  x += at;
  out += at;
  for (int i = threadIdx.x; i < half; i += blockDim.x) {
    // step 1: angle, cosine, sine
    const float angle = angle_of(pos[0] + m, inv_freq[i]);
    const float c = any_cosf(angle, variants);
    const float s = any_sinf(angle, variants);
    const float x1 = x[i];
    const float x2 = x[i + half];
    // step 2: the rotation, each operation rounded
    out[i] = turned_first(x1, x2, c, s);
    out[i + half] = turned_second(x1, x2, c, s);
  }
  // step 3: the rest passes unchanged
  for (int j = 2 * half + threadIdx.x; j < hd; j += blockDim.x) out[j] = x[j];
}
