// chain: serial sums over shared memory, at the speed of dependent additions. Contract 1.2, 1.5.
// A chain is one thread's; the values after the next sixteen are loaded before these are added.
// Arrays start at a multiple of 16 bytes.
#pragma once
#include "variants.cuh"

__device__ __forceinline__ float add_four(float acc, float4 v) {
  return __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(acc, v.x), v.y), v.z), v.w);
}

// Sixteen values on their way from shared memory.
struct Sixteen {
  float4 four[4];

  __device__ void load(const float* x) {
#pragma unroll
    for (int i = 0; i < 4; ++i) four[i] = ((const float4*)x)[i];
  }
};

__device__ __forceinline__ float add_sixteen(float acc, const Sixteen& x) {
#pragma unroll
  for (int i = 0; i < 4; ++i) acc = add_four(acc, x.four[i]);
  return acc;
}

// acc + x[0] + x[1] + ... + x[n - 1]. No load is under a condition: the compiler would wait for it
// there. The last round loads what it has.
__device__ __forceinline__ float chain_sum(const float* x, int n, float acc) {
  const int whole = n / 32 * 32;
  Sixteen one, other;
  if (whole > 0) {
    one.load(x);
#pragma unroll 1
    for (int j = 0; j < whole; j += 32) {
      other.load(x + j + 16);
      acc = add_sixteen(acc, one);
      one.load(x + min(j + 32, whole - 32));
      acc = add_sixteen(acc, other);
    }
  }
#pragma unroll 1
  for (int j = whole; j < n; ++j) acc = __fadd_rn(acc, x[j]);
  return acc;
}

__device__ __forceinline__ Sixteen products(const Sixteen& w, const Sixteen& x) {
  Sixteen p;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float4 a = w.four[i], b = x.four[i];
    p.four[i] = make_float4(__fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y), __fmul_rn(a.z, b.z),
                            __fmul_rn(a.w, b.w));
  }
  return p;
}

__device__ __forceinline__ float fused_sixteen(float acc, const Sixteen& w, const Sixteen& x) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    acc = __fmaf_rn(w.four[i].x, x.four[i].x, acc);
    acc = __fmaf_rn(w.four[i].y, x.four[i].y, acc);
    acc = __fmaf_rn(w.four[i].z, x.four[i].z, acc);
    acc = __fmaf_rn(w.four[i].w, x.four[i].w, acc);
  }
  return acc;
}

// acc + w[0] * x[0] + ... + w[n - 1] * x[n - 1], with two roundings a step, or with one. Products are
// made sixteen ahead of their addition: a chain waits for nothing but itself.
template <int FIXED>
__device__ __forceinline__ float chain_dot(const float* w, const float* x, int n, float acc) {
  const int whole = n / 16 * 16;
  if (whole > 0) {
    Sixteen w_next, x_next, made;
    w_next.load(w), x_next.load(x);
    if (!(FIXED & FMA)) made = products(w_next, x_next);
#pragma unroll 2
    for (int j = 0; j < whole; j += 16) {
      const Sixteen w_now = w_next, x_now = x_next, ready = made;
      const int next = min(j + 16, whole - 16);
      w_next.load(w + next), x_next.load(x + next);
      if (FIXED & FMA) {
        acc = fused_sixteen(acc, w_now, x_now);
      } else {
        acc = add_sixteen(acc, ready);
        made = products(w_next, x_next);
      }
    }
  }
  for (int j = whole; j < n; ++j) acc = product_sum(w[j], x[j], acc, FIXED);
  return acc;
}
