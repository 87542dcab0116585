// delta_step: one step of the gated delta rule. Contract 3.2.
// Launch: grid (blocks over vd, vh), one thread a column of S, which it walks alone; rows follow
// each other in launches. Value head h uses key head h / (vh / kh).

extern "C" __global__ void delta_step(float* o, float* s, const float* q, const float* k,
                                      const float* v, const float* beta, const float* g,
                                      int key_heads, int key_width, int value_width) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  const int h = blockIdx.y;
  if (j >= value_width) return;
  const int at = h / (gridDim.y / key_heads);
  s += (long long)h * key_width * value_width + j;
  q += at * key_width;
  k += at * key_width;
  // step 1: S = S * g; mem = sum of S * k, ascending
  float mem = 0.0f;
  for (int i = 0; i < key_width; ++i) {
    float* cell = s + (long long)i * value_width;
    *cell = __fmul_rn(*cell, g[h]);
    mem = __fadd_rn(mem, __fmul_rn(*cell, k[i]));
  }
  // step 2: delta = (v - mem) * beta
  const float delta = __fmul_rn(__fsub_rn(v[h * value_width + j], mem), beta[h]);
  // step 3: S = S + k * delta; o = sum of S * q, ascending
  float acc = 0.0f;
  for (int i = 0; i < key_width; ++i) {
    float* cell = s + (long long)i * value_width;
    *cell = __fadd_rn(*cell, __fmul_rn(k[i], delta));
    acc = __fadd_rn(acc, __fmul_rn(*cell, q[i]));
  }
  o[h * value_width + j] = acc;
}
