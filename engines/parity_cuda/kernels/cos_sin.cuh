// cos_sin: the cosine and the sine of one angle together, in half the work and code of one after the
// other. Contract 4: their bits are those of ucrt_cosf and ucrt_sinf, which stay the reference.
#pragma once
#include "variants.cuh"

struct CosSin {
  float c, s;
};

// One after the other: the arguments that only one of the two reduces by Payne-Hanek, inf and NaN. No
// angle of a model comes here: one copy, out of the way.
static __device__ __noinline__ CosSin cos_sin_apart(float x) { return {ucrt_cosf(x), ucrt_sinf(x)}; }

__device__ __forceinline__ CosSin ucrt_cos_sin(float x) {
  const unsigned bits = __float_as_uint(x), ax = bits & UCRT_ABS_MASK;
  if (ax >= UCRT_SIN_HUGE) return cos_sin_apart(x);
  // below 2^-13 one term of each, below 2^-7 two
  if (ax < UCRT_TRIG_ONE_TERM) return {__uint_as_float(UCRT_F_ONE), x};
  const double wide = (double)x, a = (double)__uint_as_float(ax);
  if (ax < UCRT_TRIG_TWO_TERMS)
    return {__double2float_rn(
                __fma_rn(-__dmul_rn(wide, ucrt_f64(UCRT_HALF)), wide, ucrt_f64(UCRT_ONE))),
            __double2float_rn(__fma_rn(-__dmul_rn(__dmul_rn(wide, wide), wide),
                                       ucrt_f64(UCRT_SIXTH), wide))};
  // up to pi/4 the angle itself; the sign of sin is put last, as rounding is the same on both sides of 0
  unsigned long long n;
  double r = reduce_medium(a, n);
  if (ax <= UCRT_TRIG_DIRECT) n = 0, r = a;
  const double c = cos_polynomial(r), s = sin_polynomial(r);
  const double cosine = (n & 1) ? s : c, sine = (n & 1) ? c : s;
  const bool negative = ((n >> 1) & 1) != (bits >> 31);
  return {__double2float_rn(((n ^ (n >> 1)) & 1) ? -cosine : cosine),
          __double2float_rn(negative ? -sine : sine)};
}

__device__ __forceinline__ CosSin any_cos_sin(float x, int variants) {
  if (variants & LIBM_SINCOS) return {library_cosf(x), library_sinf(x)};
  return ucrt_cos_sin(x);
}
