// fused_down: the chosen experts certified, down, the sum over ranks, the residual. Contract 1.4, 2.
// Launch: grid (tiles of `tile` elements of x), 288 threads, dynamic shared memory by
// fused/experts.py. A chain belongs to one thread: the grid cannot change the order.
// The experts that fused_experts worked for were guessed (topk.cuh). Here a warp makes the exact
// probabilities beside the products. Where a rank's expert is another one, every block makes that
// expert's gate, up and act anew for itself, and the first block writes them: what leaves this
// launch is what the contract says, whatever the guess was.
#include "ranks.cuh"
#include "down.cuh"
#include "overlap.cuh"
#include "topk.cuh"

#define DOWN_WARPS 8  // for the products; one more is for the probabilities

// Exact ids and probabilities of the last warp; whether the guess was right.
__device__ __forceinline__ bool exact_choice(const DownRoom& room, int norm, int variants,
                                             int experts) {
  softmax(room.soft, room.logits, variants, experts);
  const int lane = threadIdx.x % 32;
  const bool right = certified(room.guess, room.soft, experts, room.ranks);
  float chosen = 0.0f;
  if (right) {
    for (int r = lane; r < room.ranks; r += 32) {
      room.ids[r] = room.guess[r];
      room.probs[r] = room.soft[room.guess[r]];
    }
    __syncwarp();
    for (int r = 0; r < room.ranks; ++r) chosen = __fadd_rn(chosen, room.probs[r]);
    __syncwarp();
  } else {
    chosen = choose(room.ids, room.probs, room.soft, experts, room.ranks);
  }
  if (norm) share(room.probs, chosen, room.ranks);
  return right;
}

// Gate, up, act and int16 of each rank whose expert was not the one guessed, by the whole block.
// Not inlined: it is rare, and would take registers from what is not.
__device__ __noinline__ void make_anew(unsigned char* memory, int bytes, int tile, int ranks,
                                       int experts, ActMatrices m, float* gate, float* up,
                                       float* act, const short* in16, const float* in16_scale) {
  const DownRoom room(memory, bytes, tile, m.inter / 32, ranks, experts);
  float* terms = (float*)room.qs;
  float* sums = terms + 2 * ACT_TILE * terms_stride(m.nb);
  int* input = (int*)(sums + 2 * ACT_TILE);
  float* scales = (float*)(input + m.nb * INPUT_PITCH);
  stage_int16(input, scales, in16, in16_scale, m.nb, threadIdx.x, blockDim.x);
  copy_commit();
  copy_wait<0>();
  __syncthreads();
  for (int r = 0; r < room.ranks; ++r) {
    if (room.ids[r] == room.guess[r]) continue;
    const long long from = (long long)r * m.inter;
    ActOut out = {nullptr, nullptr, nullptr, (short*)(room.input + r * room.nb * INPUT_PITCH),
                  room.scales + r * room.nb, INPUT_PITCH};
    if (blockIdx.x == 0) out.gate = gate + from, out.up = up + from, out.act = act + from;
    for (int t = 0; t < room.nb; ++t) {
      const ActTile made(m, room.ids[r], t, input, scales, terms);
      auto work = made.work(blockDim.x / 32);
      work.start();
      work.run(false);
      __syncthreads();
      made.finish(out, sums);
      __syncthreads();
    }
  }
}

extern "C" __global__ void __launch_bounds__(288, 3) fused_down(float* x, float* down, int* topk,
    float* topp, float* gate, float* up, float* act, const float* ores, const float* guess,
    const float* rlogits, const short* act16, const float* act16_scale, const unsigned short* d,
    const unsigned char* qs, const short* in16, const float* in16_scale,
    const unsigned short* gate_d, const unsigned char* gate_qs, const unsigned short* up_d,
    const unsigned char* up_qs, const float* gs, const float* sh, int variants, int norm,
    int shared_row, int experts, int ranks, int inter, int hidden, int tile, int bytes) {
  extern __shared__ float4 shared_words[];
  __shared__ int shared_right[1];
  const int first = blockIdx.x * tile, height = min(tile, hidden - first), nb = inter / 32;
  unsigned char* memory = (unsigned char*)shared_words;
  const DownRoom room(memory, bytes, tile, nb, ranks, experts);
  const int warp = threadIdx.x / 32;
  const bool folds = variants & FOLD_P;
  // The guess is not of the launch ahead but of one before it, which that one has waited for.
  guess_experts(room.guess, (int*)room.soft, guess, experts, ranks);
  __syncthreads();
  room.stage(room.guess, qs, d, first, height, hidden);
  wait_for_previous();
  let_next_start();
  stage_int16(room.input, room.scales, act16, act16_scale, ranks * nb, threadIdx.x, blockDim.x);
  for (int i = threadIdx.x; i < experts; i += blockDim.x) copy_4(room.logits + i, rlogits + i);
  copy_commit();
  copy_wait<0>();
  __syncthreads();
  // step 1: the probabilities beside the terms, or before them
  if (warp == DOWN_WARPS) {
    const bool right = exact_choice(room, norm, variants, experts);
    if (threadIdx.x % 32 == 0) shared_right[0] = right;
  }
  if (folds) __syncthreads();
  PanelTerms<true, DownRoom> work(room, ranks, height, nb, room.stride, variants, DOWN_WARPS);
  if (warp < DOWN_WARPS) work.run(folds);
  __syncthreads();
  if (!shared_right[0]) {
    const ActMatrices matrices = {gate_qs, up_qs, gate_d, up_d, inter, hidden / 32, variants};
    make_anew(memory, bytes, tile, ranks, experts, matrices, gate, up, act, in16, in16_scale);
    room.stage(room.ids, qs, d, first, height, hidden);
    copy_wait<0>();
    __syncthreads();
    if (warp < DOWN_WARPS) work.run(folds);
    __syncthreads();
  }
  // step 2: blocks ascending
  for (int i = threadIdx.x; i < ranks * height; i += blockDim.x) {
    const int r = i / height, row = i - r * height;
    const float sum = chain_sum(room.terms + (r * tile + row) * room.stride, nb, 0.0f);
    room.sums[r * tile + row] = sum;
    down[(long long)r * hidden + first + row] = sum;
  }
  if (blockIdx.x == 0)
    for (int r = threadIdx.x; r < ranks; r += blockDim.x) topk[r] = room.ids[r], topp[r] = room.probs[r];
  __syncthreads();
  // step 3: by rank, the shared expert's, the residual
  for (int i = threadIdx.x; i < height; i += blockDim.x) {
    float ffn = ranks_sum(room.sums + i, tile, room.probs, ranks, variants);
    if (shared_row) ffn = with_shared(ffn, gs[0], sh[first + i]);
    x[first + i] = __fadd_rn(ores[first + i], ffn);
  }
}
