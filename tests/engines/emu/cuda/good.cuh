// Shared by the three good kernels.
#pragma once

// An exponential for x <= 0 that is nothing but rounded operations in this order.
__device__ __forceinline__ float own_exp(float x) {
  if (x < -87.0f) return 0.0f;
  const float k = rintf(x * 1.44269504f);
  const float r = fmaf(k, 2.12194440e-4f, fmaf(k, -0.693359375f, x));
  float p = 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return p * __int_as_float((__float2int_rn(k) + 127) << 23);
}

// The block's maximum, by halves; shared memory declared in a device function.
__device__ float block_max(float value) {
  __shared__ float halves[64];
  const int t = threadIdx.x;
  halves[t] = value;
  __syncthreads();
  for (int n = blockDim.x / 2; n > 0; n /= 2) {
    if (t < n) halves[t] = fmaxf(halves[t], halves[t + n]);
    __syncthreads();
  }
  return halves[0];
}
