// variants: bits of the named departures, and the functions they swap. Contract 5.
// Where device library functions do not exist (emulated), stand-ins take their place: their bits
// are not the device's.
#pragma once
#include "elementary.cuh"

#define RSQRT (1 << 0)
#define NORM_TREE (1 << 1)
#define FMA (1 << 2)
#define SPLIT_K (1 << 3)
#define UNPAIRED (1 << 4)
#define LIBM_EXP (1 << 5)
#define LIBM_SINCOS (1 << 6)
#define EXP_VIA_DOUBLE (1 << 7)
#define TWO_PASS (1 << 8)
#define ROUTER_TREE (1 << 9)
#define SCALE_ASSOC (1 << 10)
#define FOLD_P (1 << 11)
#define DIV_BY_INVERSE (1 << 12)
#define SPLIT_KEYS (1 << 13)
#define ZERO_POINT (1 << 14)

// The mask of a launch. Where a unit is compiled for one mask alone (nvrtc.py), it is that number, and
// the unit has no code of any other: instructions that no cache holds cost a launch microseconds.
#ifdef KNOWN_VARIANTS
#define KNOWN(variants) (KNOWN_VARIANTS)
#else
#define KNOWN(variants) (variants)
#endif

#ifdef __CUDA_EMU__
#define library_expf emu_standin_expf
#define library_exp emu_standin_exp
#define library_cosf emu_standin_cosf
#define library_sinf emu_standin_sinf
#define library_rsqrtf emu_standin_rsqrtf
#else
#define library_expf expf
#define library_exp exp
#define library_cosf cosf
#define library_sinf sinf
#define library_rsqrtf rsqrtf
#endif

// 1 / sqrt(v), or the reciprocal square root.
__device__ __forceinline__ float inverse_root(float v, int variants) {
  if (variants & RSQRT) return library_rsqrtf(v);
  return __fdiv_rn(1.0f, __fsqrt_rn(v));
}

// acc + w * x with two roundings, or with one.
__device__ __forceinline__ float product_sum(float w, float x, float acc, int variants) {
  if (variants & FMA) return __fmaf_rn(w, x, acc);
  return __fadd_rn(acc, __fmul_rn(w, x));
}

// (dot * s_w) * s_a, or (s_w * s_a) * dot.
__device__ __forceinline__ float scaled_dot(int dot, float s_w, float s_a, int variants) {
  if (variants & SCALE_ASSOC) return __fmul_rn(__fmul_rn(s_w, s_a), (float)dot);
  return __fmul_rn(__fmul_rn((float)dot, s_w), s_a);
}

// expf by the replica, the library, or the library's double exp.
__device__ __forceinline__ float any_expf(float x, int variants) {
  if (variants & LIBM_EXP) return library_expf(x);
  if (variants & EXP_VIA_DOUBLE) return (float)library_exp((double)x);
  return ucrt_expf(x);
}

__device__ __forceinline__ float any_cosf(float x, int variants) {
  return variants & LIBM_SINCOS ? library_cosf(x) : ucrt_cosf(x);
}

__device__ __forceinline__ float any_sinf(float x, int variants) {
  return variants & LIBM_SINCOS ? library_sinf(x) : ucrt_sinf(x);
}

// sigmoid and softplus of contract 1.9 with the exponential asked for.
__device__ __forceinline__ float any_sigmoid(float x, int variants) {
  return __fdiv_rn(1.0f, __fadd_rn(1.0f, any_expf(-x, variants)));
}

__device__ __forceinline__ float any_softplus(float x, int variants) {
  if (x > 20.0f) return x;
  return ucrt_logf(__fadd_rn(1.0f, any_expf(x, variants)));
}

// silu of contract 1.9 with the exponential asked for.
__device__ __forceinline__ float any_silu(float x, int variants) {
  return __fmul_rn(x, any_sigmoid(x, variants));
}

// x / s, or x times the inverse. The caller asks zero_scale first.
__device__ __forceinline__ float quotient(float x, float s, int variants) {
  return variants & DIV_BY_INVERSE ? __fmul_rn(x, __fdiv_rn(1.0f, s)) : __fdiv_rn(x, s);
}

// Whether a scale gives zeros: 0, or with the inverse one whose inverse is infinite.
__device__ __forceinline__ bool zero_scale(float s, int variants) {
  if (s == 0.0f) return true;
  return (variants & DIV_BY_INVERSE) && __fdiv_rn(1.0f, s) > 3.4028234663852886e38f;
}
