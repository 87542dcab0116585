// fused_heads_f32: head norm, rotation and cache row of K, V and Q, no int8. Contract 1.2, 1.7, 3.1.
// Launch: as fused_heads_int8. query_width is how far the heads of query stand apart: hd, or 2 * hd
// where each is [q, gate] and the second half goes to gate.
#include "heads.cuh"
#include "overlap.cuh"

extern "C" __global__ void fused_heads_f32(float* knorm, float* k, float* qrope, float* gate,
    float* k_cache, float* v_cache, const float* kraw, const float* value, const float* query,
    const float* k_norm, const float* q_norm, const float* inv_freq, const int* pos, float eps,
    int variants, int half, int n_kv, int hd, int query_width) {
  variants = KNOWN(variants);
  extern __shared__ float part[];
  float* head = part + max(power_of_two(hd), 4);
  const int j = threadIdx.x, block = blockIdx.x, place = pos[0];
  const bool is_k = block < n_kv, is_v = !is_k && block < 2 * n_kv;
  const int h = is_k ? block : is_v ? block - n_kv : block - 2 * n_kv;
  const long long at = (long long)h * hd + j, row = (long long)place * n_kv * hd;
  Turn turn;
  if (!is_v) turn.prepare(is_k ? k_norm : q_norm, inv_freq, place, variants, half, hd);
  wait_for_previous();
  let_next_start();
  if (is_v) {
    if (j < hd) v_cache[row + at] = value[at];
    return;
  }
  const float* from = is_k ? kraw + at : query + (long long)h * query_width + j;
  float x = j < hd ? from[0] : 0.0f;
  head[j] = x;
  if (!is_k && query_width > hd && j < hd) gate[at] = from[hd];
  const float r = mean_root(head_squares(x, part, variants, hd), hd, eps, variants);
  x = normed(x, r, turn.w);
  if (is_k && j < hd) knorm[at] = x;
  x = turn.apply(x, head[turn.other], r);
  if (j >= hd) return;
  if (is_k) k_cache[row + at] = x;
  (is_k ? k : qrope)[at] = x;
}
