// attention_combine: the sums of the parts of keys, of either storage. Contract 5, split_keys.
// Grid (blocks of 32 dimensions, heads, M), block 32. The sum over parts is one thread's.
#include "attention_parts.cuh"

extern "C" __global__ void __launch_bounds__(32) attention_combine(float* out, float* sums, const int* pos,
    int heads, int parts, int hd) {
  combine_parts(out, PartSums{sums, heads, parts, hd}, pos[0]);
}
