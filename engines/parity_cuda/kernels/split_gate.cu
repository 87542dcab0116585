// split_gate: q_proj of a gated attention gives [q, gate] per head. Contract 3.1.
// Launch: grid (blocks over heads * hd, M), one thread an element.

extern "C" __global__ void split_gate(float* query, float* gate, const float* both, int heads,
                                      int hd) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= heads * hd) return;
  const long long row = (long long)blockIdx.y * heads * hd;
  const float* head = both + 2 * (row + (long long)(at / hd) * hd);
  // step 1: the head's first half, then its second
  query[row + at] = head[at % hd];
  gate[row + at] = head[hd + at % hd];
}
