// selftest: proves at start-up that the build neither flushes subnormals nor contracts, and tells the
// mask that its unit knows: a launch of another mask must not have come to it.
// Launch: one thread. in[0] + in[1] is subnormal; in[2] * in[3] + in[4] is 0 with two roundings and
// 2^-24 when fused; in[5] / in[6] and the root of in[7] must be correctly rounded.
#include "variants.cuh"

extern "C" __global__ void selftest(unsigned* out, const float* in, int variants) {
  variants = KNOWN(variants);
  out[0] = __float_as_uint(in[0] + in[1]);
  out[1] = __float_as_uint(in[2] * in[3] + in[4]);
  out[2] = __float_as_uint(in[5] / in[6]);
  out[3] = __float_as_uint(sqrtf(in[7]));
  out[4] = (unsigned)variants;
}
