// experts: gate, up and swiglu of a chosen Q4_0 expert, by tiles of act. Contract 1.4, 1.9, 2.
// Blocks of 256 threads.
#pragma once
#include "chain.cuh"
#include "int16.cuh"
#include "q4_int.cuh"

#define ACT_TILE 32  // elements of act that a block makes at once: one block of int16
#define WARP_ROWS 8  // rows of a warp: four warps have gate's, four up's
#define STEP_ROWS 4   // of these are worked on at once, 32 blocks of each

// The two matrices [experts, inter, hidden] and what comes of them: gate, up, act f32, and q, scale:
// act's int16 form.
struct ActMatrices {
  const unsigned char *gate_qs, *up_qs;
  const unsigned short *gate_d, *up_d;
  int inter, nb;
};

struct ActOut {
  float *gate, *up, *act;
  short* q;
  float* scale;
};

// Waits until all but the last `left` groups of copies are there, perhaps for more of them.
__device__ __forceinline__ void copy_wait_but(int left) {
  if (left >= 3) {
    copy_wait<3>();
  } else if (left == 2) {
    copy_wait<2>();
  } else if (left == 1) {
    copy_wait<1>();
  } else {
    copy_wait<0>();
  }
}

// Where a block's things lie. fused/experts.py sizes the memory by the same sums.
struct ActRoom {
  unsigned char* qs;  // [2, ACT_TILE, nb * 16], a warp after the other
  unsigned short* d;  // [2, ACT_TILE, nb]
  float *terms, *scales, *keys;
  int *input, *ids;
  int nb, stride;

  __device__ ActRoom(void* memory, int nb_, int experts) : nb(nb_), stride(terms_stride(nb_)) {
    qs = (unsigned char*)memory;
    d = (unsigned short*)(qs + 2 * ACT_TILE * nb * 16);
    terms = (float*)(d + 2 * ACT_TILE * nb);
    input = (int*)(terms + 2 * ACT_TILE * stride);
    scales = (float*)(input + nb * INPUT_PITCH);
    keys = scales + (nb + 3) / 4 * 4;
    ids = (int*)(keys + (experts + 7) / 8 * 8);
  }

  __device__ int steps() const { return (nb + 31) / 32 * (WARP_ROWS / STEP_ROWS); }

  // Whether a lane has a block of its own in a step.
  __device__ bool there(int step) const {
    return step / (WARP_ROWS / STEP_ROWS) * 32 + (int)threadIdx.x % 32 < nb;
  }

  // The first unit of a step that is this lane's, counted from the warp's first; its next rows' are nb
  // apart. For what is not there the last block, which such a lane reads and never writes.
  __device__ int unit(int step) const {
    const int b = step / (WARP_ROWS / STEP_ROWS) * 32 + (int)threadIdx.x % 32;
    return step % (WARP_ROWS / STEP_ROWS) * STEP_ROWS * nb + min(b, nb - 1);
  }

  // Asks for the weights of the warp's rows: a group of copies for each step.
  __device__ void ask(const ActMatrices& m, int expert, int tile) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, own = warp * WARP_ROWS * nb;
    const int row = tile * ACT_TILE + warp % 4 * WARP_ROWS;
    const long long at = ((long long)expert * m.inter + row) * nb;
    const unsigned char* from = (warp < 4 ? m.gate_qs : m.up_qs) + at * 16;
    const unsigned short* from_d = (warp < 4 ? m.gate_d : m.up_d) + at;
    // eight rows' halves of a block are 16 bytes
    for (int i = lane; i < nb; i += 32) copy_16(d + own + 8 * i, from_d + 8 * i);
#pragma unroll 1
    for (int step = 0; step < steps(); ++step) {
      const int first = unit(step);
      if (there(step))
#pragma unroll
        for (int s = 0; s < STEP_ROWS; ++s)
          copy_16(qs + (own + first + s * nb) * 16, from + (long long)(first + s * nb) * 16);
      copy_commit();
    }
  }

  // The terms of a step, of weights that this warp's lanes have brought.
  __device__ void make_terms(int step, int variants) const {
    const int own = threadIdx.x / 32 * WARP_ROWS, first = unit(step), b = first % nb;
    const int row = own + first / nb;
    const Int16Block x(input + b * INPUT_PITCH);
    const float s_a = scales[b];
    const unsigned flip = high_flip(nb);
    float term[STEP_ROWS];
#pragma unroll
    for (int s = 0; s < STEP_ROWS; ++s) {
      const int at = own * nb + first + s * nb;
      term[s] = block_term(x, ((const uint4*)qs)[at], d[at], s_a, flip, variants);
    }
    if (there(step))
#pragma unroll
      for (int s = 0; s < STEP_ROWS; ++s) terms[(row + s) * stride + b] = term[s];
  }

  // The chains, swiglu and int16, after the block's barrier; sums: 2 * ACT_TILE floats of shared memory.
  // Every thread of the block must call it.
  __device__ void finish(const ActOut& out, float* sums, int variants) const {
    const int i = threadIdx.x;
    if (i < 2 * ACT_TILE) {
      // step 1: blocks ascending
      const float sum = chain_sum(terms + i * stride, nb, 0.0f);
      sums[i] = sum;
      (i < ACT_TILE ? out.gate : out.up)[i % ACT_TILE] = sum;
    }
    __syncthreads();
    if (i >= ACT_TILE) return;
    // step 2: silu, then one product
    const float act = __fmul_rn(any_silu(sums[i], variants), sums[ACT_TILE + i]);
    // step 3: int16
    float s;
    const short q = quantised16(act, s, variants);
    out.act[i] = act, out.q[i] = q;
    if (i == 0) out.scale[0] = s;
  }
};
