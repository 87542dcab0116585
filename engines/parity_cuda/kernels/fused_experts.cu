// fused_experts: gate, up, swiglu and int16 of the chosen experts, and beside them the router's exact
// sums. Contract 1.4, 1.5, 1.9, 2.
// Launch: grid (`tiles` blocks of router rows, one for the shared expert's gate if there is one, then
// a block for each rank and 32 elements of act), 256 threads, dynamic shared memory by
// fused/experts.py. A chain belongs to one thread: the grid cannot change the order.
// guess: logits that choose the experts, see topk.cuh; fused_down certifies them.
#include "experts.cuh"
#include "overlap.cuh"
#include "route.cuh"
#include "topk.cuh"

// The rows of the router from `first` on, and their sums.
__device__ __forceinline__ void exact_rows(float* out, const float* rows, const float* fnrm,
                                           int count, int hidden, int stride, int variants,
                                           float* shared) {
  float* x = shared + count * stride;
  stage_floats(shared, rows, count, hidden, stride);
  copy_commit();
  wait_for_previous();
  let_next_start();
  stage_floats(x, fnrm, 1, hidden, 0);
  copy_commit();
  copy_wait<0>();
  __syncthreads();
  chain_rows(out, shared, x, count, hidden, stride, variants);
}

extern "C" __global__ void __launch_bounds__(256, 2) fused_experts(float* gate, float* up, float* act,
    short* act16, float* act16_scale, float* rlogits, float* shared_logit, float* gs,
    const float* guess, const float* fnrm, const short* in16, const float* in16_scale,
    const unsigned short* gate_d, const unsigned char* gate_qs, const unsigned short* up_d,
    const unsigned char* up_qs, const float* router, const float* shared_gate, int variants,
    int tiles, int shared_row, int experts, int ranks, int inter, int hidden, int stride) {
  variants = KNOWN(variants);
  extern __shared__ float shared[];
  __shared__ float sums[2 * ACT_TILE];
  if (blockIdx.x < tiles) {
    const int most = (experts + tiles - 1) / tiles, first = blockIdx.x * most;
    exact_rows(rlogits + first, router + (long long)first * hidden, fnrm,
               min(most, experts - first), hidden, stride, variants, shared);
    return;
  }
  if (shared_row && blockIdx.x == tiles) {
    exact_rows(shared_logit, shared_gate, fnrm, 1, hidden, stride, variants, shared);
    // the thread that made the sum
    if (threadIdx.x == 0) gs[0] = any_sigmoid(shared_logit[0], variants);
    return;
  }
  const int over = inter / ACT_TILE, at = blockIdx.x - tiles - shared_row;
  const int rank = at / over, tile = at - rank * over, nb = hidden / 32;
  const ActRoom room(shared, nb, experts);
  const long long from = (long long)rank * inter + tile * ACT_TILE;
  if (threadIdx.x < 4) prefetch_near(UCRT_EXP2 + 16 * threadIdx.x);
  wait_for_previous();
  stage_int16(room.input, room.scales, in16, in16_scale, nb, threadIdx.x, blockDim.x);
  copy_commit();
  guess_experts(room.ids, room.keys, guess, experts, ranks);
  copy_wait<0>();
  __syncthreads();
  room.ask({gate_qs, up_qs, gate_d, up_d, inter, nb}, room.ids[rank], tile);
  let_next_start();  // its weights come after these
  const int steps = room.steps();
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    copy_wait_but(steps - 1 - step);
    __syncwarp();
    room.make_terms(step, variants);
  }
  __syncthreads();
  room.finish({gate + from, up + from, act + from, act16 + from, act16_scale + from / ACT_TILE}, sums,
              variants);
}
