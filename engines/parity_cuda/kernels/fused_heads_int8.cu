// fused_heads_int8: head norm, rotation, int8 form and cache row of K, V and Q. Contract 1.2, 1.6, 1.7.
// Launch: grid (2 * n_kv + n_q): K's heads, V's, Q's; hd threads, rounded up to whole warps; dynamic
// shared memory: hd and power_of_two(hd) floats. One block per head: the grid cannot change an order.
#include "heads.cuh"
#include "overlap.cuh"

extern "C" __global__ void fused_heads_int8(float* knorm, signed char* k, float* k_scale,
    signed char* v, float* v_scale, float* qrope, signed char* q, float* q_scale,
    signed char* k_cache, float* k_scales, signed char* v_cache, float* v_scales,
    const float* kraw, const float* value, const float* query, const float* k_norm,
    const float* q_norm, const float* inv_freq, const int* pos, float eps, int variants, int half,
    int n_kv, int hd) {
  variants = KNOWN(variants);
  extern __shared__ float part[];
  float* head = part + max(power_of_two(hd), 4);
  const int j = threadIdx.x, block = blockIdx.x, place = pos[0];
  const bool is_k = block < n_kv, is_v = !is_k && block < 2 * n_kv;
  const int h = is_k ? block : is_v ? block - n_kv : block - 2 * n_kv;
  const long long at = (long long)h * hd + j;
  Turn turn;
  if (!is_v) turn.prepare(is_k ? k_norm : q_norm, inv_freq, place, variants, half, hd);
  const float* from = (is_k ? kraw : is_v ? value : query) + at;
  signed char* to = (is_k ? k : is_v ? v : q) + at;
  float* scale = (is_k ? k_scale : is_v ? v_scale : q_scale) + h;
  const long long row = (long long)place * n_kv;
  signed char* cache = (is_k ? k_cache : v_cache) + row * hd + at;
  float* cache_scale = (is_k ? k_scales : v_scales) + row + h;
  wait_for_previous();
  let_next_start();
  float x = j < hd ? from[0] : 0.0f;
  if (!is_v) {
    head[j] = x;
    const float r = mean_root(head_squares(x, part, variants, hd), hd, eps, variants);
    x = normed(x, r, turn.w);
    if (is_k && j < hd) knorm[at] = x;
    x = turn.apply(x, head[turn.other], r);
    if (!is_k && j < hd) qrope[at] = x;
  }
  const float s = __fdiv_rn(head_largest(j < hd ? x : 0.0f), 127.0f);
  const signed char made = quantised(x, s, variants);
  if (j < hd) to[0] = made;
  if (j == 0) scale[0] = s;
  if (!is_k && !is_v) return;
  if (j < hd) cache[0] = made;
  if (j == 0) cache_scale[0] = s;
}
