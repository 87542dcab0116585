// fused_delta_inputs: all that the delta rule reads, in one launch: conv_step with its history,
// l2norm of q and k, delta_gates. Contract 3.2.
// Launch: 128 threads; grid: a block for each head of q, then of k, then blocks over the channels
// of v (value_blocks), then over the value heads; dynamic shared memory by delta.py. A channel is
// one thread's and a head one block's, for all M rows.
#include "async_copy.cuh"
#include "delta.cuh"
#include "overlap.cuh"

// What a thread has of a channel before the new rows are there.
struct DeltaChannel {
  float tap[4], w[4];

  // No launch of this step has written them before: they are read before it waits.
  __device__ __forceinline__ void load(const float* hist, const float* weights, int c,
                                       int channels) {
#pragma unroll
    for (int t = 0; t < 3; ++t) tap[t] = hist[t * channels + c];
#pragma unroll
    for (int t = 0; t < 4; ++t) w[t] = weights[c * 4 + t];
  }

  // The channel of a new row, after silu; its history moves on.
  __device__ __forceinline__ float next(float row, int variants) {
    tap[3] = row;
    const float value = any_silu(conv_sum(tap, w), variants);
#pragma unroll
    for (int t = 0; t < 3; ++t) tap[t] = tap[t + 1];
    return value;
  }
};

// beta and g of the heads of a block.
__device__ __forceinline__ void delta_gates_of(float* beta, float* g, const float* a,
                                               const float* b, const float* rates,
                                               const float* dt_bias, int variants, int rows,
                                               int h, int heads) {
  const bool there = h < heads;
  const float rate = there ? rates[h] : 0.0f, bias = there ? dt_bias[h] : 0.0f;
  ask_exp_table();
  ask_log_tables();
  wait_for_previous();
  let_next_start();
#pragma unroll 1
  for (int at = h; at < rows * heads && there; at += heads) {
    beta[at] = any_sigmoid(b[at], variants);
    g[at] = decay(a[at], rate, bias, variants);
  }
}

// The rows of one head of q or k, from their channels and squares, `pitch` apart.
__device__ __forceinline__ void normed_heads(float* out, const float* head, const float* part,
                                             float* roots, float by, int rows, int pitch,
                                             int key_width, int stride) {
  __syncthreads();
  const int m = threadIdx.x;
  if (m < rows) roots[m] = l2_inverse(chain_sum(part + m * pitch, key_width, 0.0f));
  __syncthreads();
#pragma unroll 1
  for (int m = 0; m < rows; ++m)
#pragma unroll 1
    for (int j = threadIdx.x; j < key_width; j += blockDim.x)
      out[(long long)m * stride + j] = __fmul_rn(__fmul_rn(head[m * pitch + j], roots[m]), by);
}

extern "C" __global__ void __launch_bounds__(128) fused_delta_inputs(
    float* conv, float* hist, float* qn, float* kn, float* beta, float* g, const float* qkv,
    const float* a, const float* b, const float* w, const float* rates, const float* dt_bias,
    float scale, int variants, int rows, int key_heads, int key_width, int heads, int channels,
    int value_blocks) {
  variants = KNOWN(variants);
  extern __shared__ float head[];
  const int unit = blockIdx.x - 2 * key_heads, gates = unit - value_blocks;
  if (gates >= 0) {
    const int h = gates * blockDim.x + threadIdx.x;
    delta_gates_of(beta, g, a, b, rates, dt_bias, variants, rows, h, heads);
    return;
  }
  const int first_v = 2 * key_heads * key_width, pitch = (key_width + 3) / 4 * 4 + 4;
  const int first = unit < 0 ? blockIdx.x * key_width : first_v + unit * (int)blockDim.x;
  const int end = unit < 0 ? first + key_width : min(first + (int)blockDim.x, channels);
  float *part = head + rows * pitch, *roots = part + rows * pitch;
  DeltaChannel channel;
  int c = first + threadIdx.x;
  if (c < end) channel.load(hist, w, c, channels);
  ask_exp_table();
  wait_for_previous();
  let_next_start();
#pragma unroll 1
  for (; c < end; c += blockDim.x) {
    if (c >= first + (int)blockDim.x) channel.load(hist, w, c, channels);
#pragma unroll 1
    for (int m = 0; m < rows; ++m) {
      const float value = channel.next(qkv[(long long)m * channels + c], variants);
      conv[(long long)m * channels + c] = value;
      if (unit >= 0) continue;
      head[m * pitch + c - first] = value;
      part[m * pitch + c - first] = __fmul_rn(value, value);
    }
#pragma unroll
    for (int t = 0; t < 3; ++t) hist[t * channels + c] = channel.tap[t];
  }
  if (unit >= 0) return;
  const bool query = (int)blockIdx.x < key_heads;
  float* out = (query ? qn : kn) + blockIdx.x % key_heads * key_width;
  normed_heads(out, head, part, roots, query ? scale : 1.0f, rows, pitch, key_width,
               key_heads * key_width);
}
