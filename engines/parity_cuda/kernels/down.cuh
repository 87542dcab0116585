// down: the shared memory of fused_down, and its weights' way there. Contract 1.4, 2.
#pragma once
#include "experts.cuh"

// Where a block's things lie. fused/experts.py sizes the memory by the same sums.
struct DownRoom {
  unsigned char* qs;  // [ranks, tile, nb * 16]; while experts are made anew, room for that
  unsigned short* d;  // [ranks, tile, nb]
  float *terms, *scales, *soft, *sums, *probs;
  int *input, *guess, *ids;
  int tile, nb, ranks, stride;

  __device__ DownRoom(unsigned char* memory, int bytes, int tile_, int nb_, int ranks_, int experts)
      : tile(tile_), nb(nb_), ranks(ranks_), stride(terms_stride(nb_)) {
    const int rows = ranks * tile;
    qs = memory;
    d = (unsigned short*)(memory + bytes);
    terms = (float*)(d + (rows * nb + 7) / 8 * 8);
    input = (int*)(terms + rows * stride);
    scales = (float*)(input + ranks * nb * INPUT_PITCH);
    soft = scales + (ranks * nb + 3) / 4 * 4;
    sums = soft + (experts + 7) / 8 * 8;
    probs = sums + rows;
    guess = (int*)(probs + ranks);
    ids = guess + ranks;
  }

  __device__ Panel operator()(int i) const {
    const int at = i * tile * nb;
    return {qs + at * 16, d + at, input + i * nb * INPUT_PITCH, scales + i * nb,
            terms + i * tile * stride};
  }

  // Asks for rows first .. first + height of the experts `chosen` of [experts, hidden, nb]; a group
  // of copies by the first `threads` threads, which alone may call.
  __device__ void stage(const int* chosen, const unsigned char* from, const unsigned short* from_d,
                        int first, int height, int hidden, int threads) const {
    const int units = height * nb;
    for (int r = 0; r < ranks; ++r) {
      const long long at = ((long long)chosen[r] * hidden + first) * nb;
      unsigned char* to = qs + r * tile * nb * 16;
      for (int i = threadIdx.x; i < units; i += threads)
        copy_16((float*)(to + i * 16), (const float*)(from + (at + i) * 16));
      stage_halves(d + r * tile * nb, from_d + at, units, threads);
    }
    copy_commit();
  }

  // Two at a time where they lie so.
  static __device__ void stage_halves(unsigned short* to, const unsigned short* from, int count,
                                      int threads) {
    if (((size_t)to | (size_t)from) % 4 == 0 && count % 2 == 0) {
      for (int i = threadIdx.x; i < count / 2; i += threads)
        copy_4((float*)to + i, (const float*)from + i);
    } else {
      for (int i = threadIdx.x; i < count; i += threads) to[i] = from[i];
    }
  }

  // The rows' sums, blocks ascending, also to `out`: a warp a rank, a lane a row (tile is at most 32).
  // The terms and, under fold_p, the probabilities are there.
  __device__ void add_up(float* out, int first, int height, int hidden, int warps, int variants) const {
    const int row = threadIdx.x % 32;
    for (int r = threadIdx.x / 32; r < ranks; r += warps) {
      if (row >= height) continue;
      const float* from = terms + (r * tile + row) * stride;
      const float sum = variants & FOLD_P ? folded_sum(from, probs[r]) : chain_sum(from, nb, 0.0f);
      sums[r * tile + row] = sum;
      out[(long long)r * hidden + first + row] = sum;
    }
  }

  // acc + term * p
  __device__ float folded_sum(const float* from, float p) const {
    float acc = 0.0f;
#pragma unroll 8
    for (int b = 0; b < nb; ++b) acc = __fadd_rn(acc, __fmul_rn(from[b], p));
    return acc;
  }
};
