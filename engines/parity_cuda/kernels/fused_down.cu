// fused_down: the chosen experts certified, down, the sum over ranks, the residual. Contract 1.4, 2.
// Launch: grid (tiles of `tile` elements of x), 288 threads, dynamic shared memory by
// fused/experts.py. A chain belongs to one thread: the grid cannot change the order.
// The experts that fused_experts worked for were guessed (topk.cuh). Here a warp makes the exact
// probabilities beside the products. Where a rank's expert is another one, every block makes that
// expert's gate, up and act anew for itself, and the first block writes them: what leaves this
// launch is what the contract says, whatever the guess was.
#include "barriers.cuh"
#include "ranks.cuh"
#include "down.cuh"
#include "overlap.cuh"
#include "topk.cuh"

#define TERM_THREADS (DOWN_WARPS * 32)
#define TERMS_BARRIER 1

// What the probabilities are made of and where they go, of one row.
struct Choice {
  const float* logits;
  int* topk;
  float* topp;
  int norm, experts;
};

// Rare, and so out of the way.
__device__ __noinline__ float choose_anew(int* ids, float* probs, float* soft, int experts,
                                          int ranks) {
  return choose(ids, probs, soft, experts, ranks);
}

// Exact ids and probabilities, by one warp; whether the guess was right.
__device__ __forceinline__ bool exact_choice(const DownRoom& room, const Choice& of, int variants) {
  softmax(room.soft, of.logits, variants, of.experts);
  const int lane = threadIdx.x % 32;
  const bool right = certified(room.guess, room.soft, of.experts, room.ranks);
  float chosen = 0.0f;
  if (right) {
#pragma unroll 1
    for (int r = lane; r < room.ranks; r += 32) {
      room.ids[r] = room.guess[r];
      room.probs[r] = room.soft[room.guess[r]];
    }
    __syncwarp();
#pragma unroll 8
    for (int r = 0; r < room.ranks; ++r) chosen = __fadd_rn(chosen, room.probs[r]);
    __syncwarp();
  } else {
    chosen = choose_anew(room.ids, room.probs, room.soft, of.experts, room.ranks);
  }
  if (of.norm) share(room.probs, chosen, room.ranks);
  if (blockIdx.x == 0)
#pragma unroll 1
    for (int r = lane; r < room.ranks; r += 32) of.topk[r] = room.ids[r], of.topp[r] = room.probs[r];
  return right;
}

extern "C" __global__ void __launch_bounds__(288, 2) fused_down(float* x, float* down, int* topk,
    float* topp, float* gate, float* up, float* act, const float* ores, const float* guess,
    const float* rlogits, const short* act16, const float* act16_scale, const unsigned short* d,
    const unsigned char* qs, const short* in16, const float* in16_scale,
    const unsigned short* gate_d, const unsigned char* gate_qs, const unsigned short* up_d,
    const unsigned char* up_qs, const float* gs, const float* sh, int variants, int norm,
    int shared_row, int experts, int ranks, int inter, int hidden, int tile) {
  variants = KNOWN(variants);
  extern __shared__ float4 shared_words[];
  __shared__ int shared_right[1];
  const int first = blockIdx.x * tile, height = min(tile, hidden - first), nb = inter / 32;
  const DownRoom room(shared_words, tile, nb, ranks, experts);
  const DownRows rows = {qs, d, first, height, hidden};
  DownTerms work(room, rows);
  const int me = threadIdx.x;
  const bool makes = me < TERM_THREADS, folds = variants & FOLD_P;
  // The guess and ores are not of the launch ahead but of one before it, which that one has waited for.
  guess_experts(room.guess, room.soft, guess, experts, ranks);
  __syncthreads();
  if (makes) {
    work.load(me / 32);
  } else if (me - TERM_THREADS < 4) {
    prefetch_near(UCRT_EXP2 + 16 * (me - TERM_THREADS));
  }
  const float before = me < height ? __ldcg(ores + first + me) : 0.0f;
  wait_for_previous();
  let_next_start();
  // step 1: the probabilities beside the terms, which under fold_p are multiplied by them
  float other = 0.0f, share_of_other = 0.0f;
  if (makes) {
    stage_int16(room.input, room.scales, act16, act16_scale, ranks * nb, me, TERM_THREADS);
    copy_commit();
    if (shared_row && me < height) other = sh[first + me], share_of_other = gs[0];
    copy_wait<0>();
    barrier_sync(TERMS_BARRIER, TERM_THREADS);
#pragma unroll 1
    for (int from = me / 32;;) {
      work.use(from, variants);
      from += HELD_TASKS * DOWN_WARPS;
      if (from >= work.tasks) break;
      work.load(from);
    }
  } else {
    const bool right = exact_choice(room, {rlogits, topk, topp, norm, experts}, variants);
    if (me == TERM_THREADS) shared_right[0] = right;
  }
  if (folds) {
    __syncthreads();
  } else if (makes) {
    barrier_sync(TERMS_BARRIER, TERM_THREADS);
  }
  // step 2: blocks ascending
  if (makes) room.add_up(down, first, height, hidden, variants);
  __syncthreads();
  if (!shared_right[0]) {
    const ActMatrices m = {gate_qs, up_qs, gate_d, up_d, inter, hidden / 32};
    make_anew(shared_words, tile, ranks, experts,
              {m, {gate, up, act, nullptr, nullptr}, down, (const int*)in16, in16_scale,
               {qs, d, first, height, hidden}},
              variants);
  }
  // step 3: by rank, the shared expert's, the residual
  if (me < height) {
    float ffn = ranks_sum(room.sums + me, tile, room.probs, ranks, variants);
    if (shared_row) ffn = with_shared(ffn, share_of_other, other);
    x[first + me] = __fadd_rn(before, ffn);
  }
}
