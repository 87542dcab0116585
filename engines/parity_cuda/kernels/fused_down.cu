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

#define DOWN_WARPS 8  // for the products; one more is for the probabilities
#define TERM_THREADS (DOWN_WARPS * 32)
#define TERMS_BARRIER 1

// What the probabilities are made of and where they go, of one row.
struct Choice {
  const float* logits;
  int* topk;
  float* topp;
  int norm, experts;
};

// Exact ids and probabilities, by one warp; whether the guess was right.
__device__ __forceinline__ bool exact_choice(const DownRoom& room, const Choice& of, int variants) {
  softmax(room.soft, of.logits, variants, of.experts);
  const int lane = threadIdx.x % 32;
  const bool right = certified(room.guess, room.soft, of.experts, room.ranks);
  float chosen = 0.0f;
  if (right) {
    for (int r = lane; r < room.ranks; r += 32) {
      room.ids[r] = room.guess[r];
      room.probs[r] = room.soft[room.guess[r]];
    }
    __syncwarp();
#pragma unroll 8
    for (int r = 0; r < room.ranks; ++r) chosen = __fadd_rn(chosen, room.probs[r]);
    __syncwarp();
  } else {
    chosen = choose(room.ids, room.probs, room.soft, of.experts, room.ranks);
  }
  if (of.norm) share(room.probs, chosen, room.ranks);
  if (blockIdx.x == 0)
    for (int r = lane; r < room.ranks; r += 32) of.topk[r] = room.ids[r], of.topp[r] = room.probs[r];
  return right;
}

// What an expert is made of anew.
struct Anew {
  ActMatrices m;
  float *gate, *up, *act, *down;
  const short* in16;
  const float* in16_scale;
  const unsigned short* d;
  const unsigned char* qs;
};

// Gate, up, act and int16 of each rank whose expert was not the one guessed, by the whole block.
__device__ __forceinline__ void make_acts(const DownRoom& room, const Anew& of) {
  float* terms = (float*)room.qs;
  float* sums = terms + 2 * ACT_TILE * terms_stride(of.m.nb);
  int* input = (int*)(sums + 2 * ACT_TILE);
  float* scales = (float*)(input + of.m.nb * INPUT_PITCH);
  stage_int16(input, scales, of.in16, of.in16_scale, of.m.nb, threadIdx.x, blockDim.x);
  copy_commit();
  copy_wait<0>();
  __syncthreads();
  for (int r = 0; r < room.ranks; ++r) {
    if (room.ids[r] == room.guess[r]) continue;
    const long long from = (long long)r * of.m.inter;
    ActOut out = {nullptr, nullptr, nullptr, (short*)(room.input + r * room.nb * INPUT_PITCH),
                  room.scales + r * room.nb, INPUT_PITCH};
    if (blockIdx.x == 0) out.gate = of.gate + from, out.up = of.up + from, out.act = of.act + from;
    for (int t = 0; t < room.nb; ++t) {
      const ActTile made(of.m, room.ids[r], t, input, scales, terms);
      auto work = made.work(blockDim.x / 32);
      work.start();
      work.run();
      __syncthreads();
      made.finish(out, sums);
      __syncthreads();
    }
  }
}

// Those, and down of all ranks. Not inlined: it is rare, and would take registers from what is not.
__device__ __noinline__ void make_anew(unsigned char* memory, int bytes, int tile, int ranks,
                                       int experts, int hidden, Anew of, int variants) {
  of.m.variants = variants;
  const DownRoom room(memory, bytes, tile, of.m.inter / 32, ranks, experts);
  const int first = blockIdx.x * tile, height = min(tile, hidden - first), warps = blockDim.x / 32;
  make_acts(room, of);
  room.stage(room.ids, of.qs, of.d, first, height, hidden, blockDim.x);
  copy_wait<0>();
  __syncthreads();
  PanelTerms<true, DownRoom> work(room, ranks, height, room.nb, room.stride, variants, warps);
  work.run();
  __syncthreads();
  room.add_up(of.down, first, height, hidden, warps, variants);
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(288, 3) fused_down(float* x, float* down, int* topk,
    float* topp, float* gate, float* up, float* act, const float* ores, const float* guess,
    const float* rlogits, const short* act16, const float* act16_scale, const unsigned short* d,
    const unsigned char* qs, const short* in16, const float* in16_scale,
    const unsigned short* gate_d, const unsigned char* gate_qs, const unsigned short* up_d,
    const unsigned char* up_qs, const float* gs, const float* sh, int variants, int norm,
    int shared_row, int experts, int ranks, int inter, int hidden, int tile, int bytes) {
  variants = KNOWN(variants);
  extern __shared__ float4 shared_words[];
  __shared__ int shared_right[1];
  const int first = blockIdx.x * tile, height = min(tile, hidden - first), nb = inter / 32;
  unsigned char* memory = (unsigned char*)shared_words;
  const DownRoom room(memory, bytes, tile, nb, ranks, experts);
  const int me = threadIdx.x;
  const bool makes = me < TERM_THREADS, folds = variants & FOLD_P;
  // The guess and ores are not of the launch ahead but of one before it, which that one has waited for.
  guess_experts(room.guess, room.soft, guess, experts, ranks);
  __syncthreads();
  if (makes) {
    room.stage(room.guess, qs, d, first, height, hidden, TERM_THREADS);
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
    PanelTerms<true, DownRoom> work(room, ranks, height, nb, room.stride, variants, DOWN_WARPS);
    work.run();
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
  if (makes) room.add_up(down, first, height, hidden, DOWN_WARPS, variants);
  __syncthreads();
  if (!shared_right[0]) {
    const ActMatrices m = {gate_qs, up_qs, gate_d, up_d, inter, hidden / 32, variants};
    make_anew(memory, bytes, tile, ranks, experts, hidden,
              {m, gate, up, act, down, in16, in16_scale, d, qs}, variants);
  }
  // step 3: by rank, the shared expert's, the residual
  if (me < height) {
    float ffn = ranks_sum(room.sums + me, tile, room.probs, ranks, variants);
    if (shared_row) ffn = with_shared(ffn, share_of_other, other);
    x[first + me] = __fadd_rn(before, ffn);
  }
}
