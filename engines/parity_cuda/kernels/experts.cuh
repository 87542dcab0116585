// experts: gate, up and swiglu of a chosen Q4_0 expert, by tiles of act. Contract 1.4, 1.9, 2.
#pragma once
#include "chain.cuh"
#include "q4_int.cuh"
#include "int16.cuh"

#define ACT_TILE 32  // elements of act that a block makes at once: one block of int16

// The two matrices [experts, inter, hidden] and what comes of them, of one rank: gate, up, act
// (inter) f32 or null, q, scale: act's int16 form, `pitch` words a block of 32, or null.
struct ActMatrices {
  const unsigned char *gate_qs, *up_qs;
  const unsigned short *gate_d, *up_d;
  int inter, nb, variants;
};

struct ActOut {
  float *gate, *up, *act;
  short* q;
  float* scale;
  int pitch;
};

// Which rows the two panels of a tile are.
struct TilePanels {
  ActMatrices m;
  long long row;  // the first, counted over all experts
  const int* input;
  const float* scales;
  float* terms;
  int stride;

  __device__ Panel operator()(int i) const {
    const long long at = row * m.nb;
    return {(i ? m.up_qs : m.gate_qs) + at * 16, (i ? m.up_d : m.gate_d) + at, input, scales,
            terms + i * ACT_TILE * stride};
  }
};

// Floats between the terms of two rows: 16 bytes at a time meet no bank twice.
__device__ __forceinline__ int terms_stride(int nb) { return (nb + 31) / 32 * 32 + 4; }

// Terms of tile number t of an expert: two panels.
struct ActTile {
  TilePanels panels;
  int first, height;

  __device__ ActTile(const ActMatrices& m, int expert, int t, const int* input, const float* scales,
                     float* terms) {
    first = t * ACT_TILE, height = min(ACT_TILE, m.inter - first);
    panels = {m, (long long)expert * m.inter + first, input, scales, terms, terms_stride(m.nb)};
  }

  __device__ PanelTerms<false, TilePanels> work(int warps) const {
    return {panels, 2, height, panels.m.nb, panels.stride, panels.m.variants, warps};
  }

  // The chains, swiglu and int16, after the block's barrier; sums: 2 * ACT_TILE floats of shared
  // memory. Every thread of the block must call it; a barrier must follow before sums are reused.
  __device__ void finish(const ActOut& out, float* sums) const {
    const int i = threadIdx.x, row = i % ACT_TILE, variants = panels.m.variants;
    if (i < 2 * ACT_TILE && row < height) {
      // step 1: blocks ascending
      const float sum = chain_sum(panels.terms + i * panels.stride, panels.m.nb, 0.0f);
      sums[i] = sum;
      float* to = i < ACT_TILE ? out.gate : out.up;
      if (to) to[first + row] = sum;
    }
    __syncthreads();
    if (i >= ACT_TILE) return;
    // step 2: silu, then one product
    const float act = row < height ? __fmul_rn(any_silu(sums[row], variants), sums[ACT_TILE + row]) : 0.0f;
    if (out.act && row < height) out.act[first + row] = act;
    if (!out.q) return;
    // step 3: int16
    float s;
    out.q[first / ACT_TILE * out.pitch * 2 + row] = quantised16(act, s, variants);
    if (i == 0) out.scale[first / ACT_TILE] = s;
  }
};
