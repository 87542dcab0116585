// delta: what the ops of a Gated DeltaNet step and their fused launches share. Contract 3.2.
#pragma once
#include "async_copy.cuh"
#include "chain.cuh"

// The sum over [hist, new] of one channel, ascending; its four weights stand side by side.
__device__ __forceinline__ float conv_sum(const float (&tap)[4], const float* w) {
  float acc = 0.0f;
#pragma unroll
  for (int t = 0; t < 4; ++t) acc = __fadd_rn(acc, __fmul_rn(w[t], tap[t]));
  return acc;
}

// The reciprocal root of a head of q or k, from the sum of its squares.
__device__ __forceinline__ float l2_inverse(float ss) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(ss, 1e-6f)));
}

// expf(nA * softplus(a + dt_bias)), with the exponential asked for.
__device__ __forceinline__ float decay(float a, float rate, float dt_bias, int variants) {
  const float soft = any_softplus(__fadd_rn(a, dt_bias), variants);
  return any_expf(__fmul_rn(rate, soft), variants);
}

// What a column of S is moved by.
__device__ __forceinline__ float delta_of(float v, float mem, float beta) {
  return __fmul_rn(__fsub_rn(v, mem), beta);
}

// The tables of expf and logf on their way: the weights of a layer leave them no place in a cache.
__device__ __forceinline__ void ask_exp_table() {
  if (threadIdx.x < 4) prefetch_line(UCRT_EXP2 + 16 * threadIdx.x);
}

__device__ __forceinline__ void ask_log_tables() {
  if (threadIdx.x >= 5) return;
  const int at = min(32 * (int)threadIdx.x, 128);
  prefetch_line(UCRT_LOG_LEAD + at);
  prefetch_line(UCRT_LOG_TAIL + at);
  prefetch_line(UCRT_LOG_INVERSE + at);
}
