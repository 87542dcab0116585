// q4_chain: one Q4_0 row from the sums of its blocks. Contract 1.3, 5.
// A chain is one thread's; see chain.cuh.
#pragma once
#include "chain.cuh"
#include "q4.cuh"

// Floats from the sums of one row to the next: 16-byte loads of a warp, a lane a row, meet no bank
// twice.
__device__ __forceinline__ int q4_chain_stride(int nb) { return (nb + 31) / 32 * 32 + 4; }

// The same of scales as they are stored, in f16: 16-byte loads of a warp meet no bank twice.
__device__ __forceinline__ int q4_scale_stride(int nb) { return (nb + 31) / 32 * 32 + 8; }

// Sixteen scales.
__device__ __forceinline__ void load_scales(Sixteen& d, const unsigned short* from) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint2 four = ((const uint2*)from)[i];
    d.four[i] = make_float4(q4_scale(four.x & 0xffffu), q4_scale(four.x >> 16),
                            q4_scale(four.y & 0xffffu), q4_scale(four.y >> 16));
  }
}

__device__ __forceinline__ void split_sixteen(float (&part)[4], const Sixteen& x) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    part[0] = __fadd_rn(part[0], x.four[i].x);
    part[1] = __fadd_rn(part[1], x.four[i].y);
    part[2] = __fadd_rn(part[2], x.four[i].z);
    part[3] = __fadd_rn(part[3], x.four[i].w);
  }
}

__device__ __forceinline__ void split_fused_sixteen(float (&part)[4], const Sixteen& d,
                                                    const Sixteen& s) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    part[0] = __fmaf_rn(d.four[i].x, s.four[i].x, part[0]);
    part[1] = __fmaf_rn(d.four[i].y, s.four[i].y, part[1]);
    part[2] = __fmaf_rn(d.four[i].z, s.four[i].z, part[2]);
    part[3] = __fmaf_rn(d.four[i].w, s.four[i].w, part[3]);
  }
}

// split_k: block b adds to partial b mod 4, the four partials ascending. scales: read with fma alone.
template <int FIXED>
__device__ __forceinline__ float q4_split_chain(const float* sums, const unsigned short* scales, int nb) {
  float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  const int whole = nb / 16 * 16;
  Sixteen next, d;
  if (whole > 0) {
    next.load(sums);
    if (FIXED & FMA) load_scales(d, scales);
  }
#pragma unroll 2
  for (int b = 0; b < whole; b += 16) {
    const Sixteen now = next, d_now = d;
    const int ahead = min(b + 16, whole - 16);
    next.load(sums + ahead);
    if (FIXED & FMA) {
      load_scales(d, scales + ahead);
      split_fused_sixteen(part, d_now, now);
    } else {
      split_sixteen(part, now);
    }
  }
  for (int b = whole; b < nb; b += 4)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (b + i < nb)
        part[i] = FIXED & FMA ? __fmaf_rn(q4_scale(scales[b + i]), sums[b + i], part[i])
                              : __fadd_rn(part[i], sums[b + i]);
  float acc = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) acc = __fadd_rn(acc, part[i]);
  return acc;
}

// With fma, which multiplies by the scales here.
__device__ __forceinline__ float q4_fused_chain(const float* sums, const unsigned short* scales, int nb) {
  const int whole = nb / 16 * 16;
  float acc = 0.0f;
  Sixteen next, d;
  if (whole > 0) next.load(sums), load_scales(d, scales);
#pragma unroll 2
  for (int b = 0; b < whole; b += 16) {
    const Sixteen now = next, d_now = d;
    const int ahead = min(b + 16, whole - 16);
    next.load(sums + ahead), load_scales(d, scales + ahead);
    acc = fused_sixteen(acc, d_now, now);
  }
  for (int b = whole; b < nb; ++b) acc = __fmaf_rn(q4_scale(scales[b]), sums[b], acc);
  return acc;
}

// acc = acc + d * s, blocks ascending; sums: the products d * s, or s where an fma multiplies here.
template <int FIXED>
__device__ __forceinline__ float q4_whole_chain(const float* sums, const unsigned short* scales,
                                                int nb, int variants) {
  if (variants & SPLIT_K) return q4_split_chain<FIXED>(sums, scales, nb);
  if (FIXED & FMA) return q4_fused_chain(sums, scales, nb);
  return chain_sum(sums, nb, 0.0f);
}
