// expert_matvec: rows of the chosen Q4_0 experts times int16 rows. Contract 1.4.
// Launch: grid (tiles of weight rows, k, M), 128 threads, dynamic shared memory by tuning.py: up to
// four inputs, a sum for each block of 32 of the tile and input, a list. groups = 1: one input for all
// ranks; groups = k: each its own. A thread makes the terms of whole blocks; a chain belongs to one
// thread, so neither the grid nor M can change the order. Of the blocks (rank, m) that have the same
// expert the first works for all of them, four at a time, and the others end: its weights are read
// once for four rows.
#include "chain.cuh"
#include "q4_int.cuh"

#define EXPERT_THREADS 128
#define AHEAD 4  // blocks that a thread loads before it works on the first
#define MOST_TOGETHER 4

// One expert's tile. A choice is m * k + rank.
struct ExpertTile {
  const unsigned short* d;
  const unsigned char* qs;
  const short* q;
  const float *s_a, *probs;
  float* out;
  int* input;
  float *scales, *terms;
  int rows, nb, groups, ranks, first, tile, stride, variants;
};

// The choices of the expert of choice `own`, ascending, to `list`; how many there are, none where an
// earlier choice has it. One warp.
__device__ __forceinline__ int choices_of(int* list, const int* ids, int own, int choices) {
  const unsigned below = (1u << threadIdx.x) - 1;
  const int expert = ids[own];
  int found = 0;
  for (int from = 0; from < choices; from += 32) {
    const int choice = from + threadIdx.x;
    const bool same = choice < choices && ids[choice] == expert;
    const unsigned all = __ballot_sync(0xffffffffu, same);
    if (same) list[found + __popc(all & below)] = choice;
    found += __popc(all);
  }
  __syncwarp();
  return list[0] == own ? found : 0;
}

// The dots of a block with C inputs, `apart` words from one to the next. A nibble in the high half of a
// byte, its highest bit flipped, is 16 * (nibble - 8) as a signed byte: the dot is a sixteenth.
// |sum| <= 32 * 128 * 32767 < 2^31.
template <int C>
__device__ __forceinline__ void block_dots(int (&dot)[C], uint4 qs, const int* input, int apart) {
  const unsigned word[4] = {qs.x, qs.y, qs.z, qs.w};
#pragma unroll
  for (int c = 0; c < C; ++c) dot[c] = 0;
#pragma unroll
  for (int g = 0; g < 4; g += 2) {
    int low[2], high[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      low[i] = (int)((word[g + i] << 4 & 0xf0f0f0f0u) ^ 0x80808080u);
      high[i] = (int)((word[g + i] & 0xf0f0f0f0u) ^ 0x80808080u);
    }
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int4 a = *(const int4*)(input + c * apart + 2 * g);
      const int4 b = *(const int4*)(input + c * apart + 8 + 2 * g);
      int one = __dp2a_lo(a.x, low[0], dot[c]), other = __dp2a_lo(b.x, high[0], 0);
      one = __dp2a_hi(a.y, low[0], one), other = __dp2a_hi(b.y, high[0], other);
      one = __dp2a_lo(a.z, low[1], one), other = __dp2a_lo(b.z, high[1], other);
      one = __dp2a_hi(a.w, low[1], one), other = __dp2a_hi(b.w, high[1], other);
      dot[c] = one + other;
    }
  }
#pragma unroll
  for (int c = 0; c < C; ++c) dot[c] >>= 4;
}

// Every EXPERT_THREADS-th block from `begin` on; what is past the end is not there.
__device__ __forceinline__ void load_blocks(uint4 (&word)[AHEAD], unsigned short (&scale)[AHEAD],
                                            const ExpertTile& t, int begin) {
#pragma unroll
  for (int i = 0; i < AHEAD; ++i) {
    const int unit = begin + i * EXPERT_THREADS;
    if (unit >= t.tile * t.nb) break;
    word[i] = load_once(t.qs + (long long)unit * 16);
    scale[i] = __ldg(t.d + unit);
  }
}

// The terms of one block with C inputs.
template <int C>
__device__ __forceinline__ void put_terms(const ExpertTile& t, const int* list, uint4 word,
                                          unsigned short half, int unit) {
  const int row = unit / t.nb, b = unit - row * t.nb;
  int dot[C];
  block_dots<C>(dot, word, t.input + b * INPUT_PITCH, t.nb * INPUT_PITCH);
#pragma unroll
  for (int c = 0; c < C; ++c) {
    // step 2: (dot * s_w) * s_a, blocks ascending
    float term = scaled_dot(dot[c], half_to_f32(half), t.scales[c * t.nb + b], t.variants);
    if (t.variants & FOLD_P) term = __fmul_rn(term, t.probs[list[c]]);
    t.terms[(row * C + c) * t.stride + b] = term;
  }
}

// The outputs of C choices.
template <int C>
__device__ __forceinline__ void take_choices(const ExpertTile& t, const int* list) {
  uint4 next[AHEAD];
  unsigned short next_scale[AHEAD];
  load_blocks(next, next_scale, t, threadIdx.x);
  for (int c = 0; c < C; ++c) {
    const int m = list[c] / t.ranks, g = t.groups > 1 ? list[c] - m * t.ranks : 0;
    const long long from = ((long long)m * t.groups + g) * t.nb;
    stage_int16(t.input + c * t.nb * INPUT_PITCH, t.scales + c * t.nb, t.q + from * 32,
                t.s_a + from, t.nb, threadIdx.x, EXPERT_THREADS);
  }
  copy_commit();
  copy_wait<0>();
  __syncthreads();
  const int units = t.tile * t.nb;
  for (int begin = threadIdx.x; begin < units; begin += AHEAD * EXPERT_THREADS) {
    uint4 word[AHEAD];
    unsigned short scale[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) word[i] = next[i], scale[i] = next_scale[i];
    load_blocks(next, next_scale, t, begin + AHEAD * EXPERT_THREADS);
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const int unit = begin + i * EXPERT_THREADS;
      if (unit >= units) break;
      put_terms<C>(t, list, word[i], scale[i], unit);
    }
  }
  __syncthreads();
  if (threadIdx.x >= t.tile * C) return;
  const int row = threadIdx.x / C, c = threadIdx.x % C;
  t.out[(long long)list[c] * t.rows + t.first + row] =
      chain_sum(t.terms + threadIdx.x * t.stride, t.nb, 0.0f);
}

extern "C" __global__ void __launch_bounds__(128) expert_matvec(float* out, const unsigned short* d,
    const unsigned char* qs, const int* ids, const float* probs, const short* q, const float* s_a,
    int variants, int rows, int nb, int groups) {
  extern __shared__ float shared[];
  __shared__ int length;
  const int ranks = gridDim.y, choices = ranks * gridDim.z, own = blockIdx.z * ranks + blockIdx.y;
  const int most = (rows + gridDim.x - 1) / gridDim.x, first = blockIdx.x * most;
  if (first >= rows) return;
  const int together = min(MOST_TOGETHER, (int)gridDim.z), stride = (nb + 31) / 32 * 32 + 4;
  int* input = (int*)shared;
  float *terms = shared + together * nb * INPUT_PITCH, *scales = terms + together * most * stride;
  int* list = (int*)(scales + together * nb);
  if (threadIdx.x < 32) {
    const int found = choices_of(list, ids, own, choices);
    if (threadIdx.x == 0) length = found;
  }
  __syncthreads();
  const int count = length;
  const long long row = (long long)ids[own] * rows + first;
  const ExpertTile t = {d + row * nb, qs + row * nb * 16, q,     s_a,   probs,
                        out,          input,              scales, terms, rows,
                        nb,           groups,             ranks, first, min(most, rows - first),
                        stride,       variants};
  for (int i = 0; i < count;) {
    const int left = count - i;
    if (left >= 4 && together == 4) {
      take_choices<4>(t, list + i);
      i += 4;
    } else if (left >= 2 && together >= 2) {
      take_choices<2>(t, list + i);
      i += 2;
    } else {
      take_choices<1>(t, list + i);
      ++i;
    }
    __syncthreads();
  }
}
