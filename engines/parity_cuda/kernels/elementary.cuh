// expf, cosf, sinf, logf as the x64 UCRT computes them (FMA3 path), and what 1.9 builds on them.
//
// Contract 4 (the four routines) and 1.9 (sigmoid, silu, softplus). Bit for bit for every float32:
// the steps below are those of parity_cpu/ops/elementary.py, in the same order. expf, cosf and sinf
// work in float64 with one last rounding; logf is float32 throughout. Every rounded operation is an
// intrinsic, so no compiler option can contract one; an fma stands exactly where one is written.
// NaNs are returned by bit operations, so their payloads are equal on both twins.
#pragma once
#include "elementary_tables.cuh"

__device__ __forceinline__ double ucrt_f64(unsigned long long bits) {
  return __longlong_as_double((long long)bits);
}

// e^x; expf(-inf) = +0
__device__ __forceinline__ float ucrt_expf(float x) {
  // step 1: t = x * 64/ln 2
  const double wide = (double)x;
  const double t = __dmul_rn(wide, ucrt_f64(UCRT_EXP_SCALE));
  // step 2: n = t to the nearest integer, ties to even; e2 * scale = 2^(n/64), scale a power of 2
  const double shifted = __dadd_rn(t, ucrt_f64(UCRT_ROUND));
  const double n = __dsub_rn(shifted, ucrt_f64(UCRT_ROUND));
  const unsigned long long word = (unsigned long long)__double_as_longlong(shifted);
  const double e2 = ucrt_f64(UCRT_EXP2[word & 63]);
  const double scale = ucrt_f64(((word >> 6) + 1023) << 52);
  // step 3: r = x - n * ln 2/64, rounded once
  const double r = __fma_rn(-n, ucrt_f64(UCRT_EXP_STEP), wide);
  // step 4: q = r + r^2/2 + r^3/6; y = e2 + e2 * q
  const double q = __fma_rn(__dmul_rn(r, r),
                            __fma_rn(ucrt_f64(UCRT_SIXTH), r, ucrt_f64(UCRT_HALF)), r);
  const double y = __fma_rn(q, e2, e2);
  // step 5: y * scale is exact, so this rounding to float32 is the only one, subnormals included
  float result = __double2float_rn(__dmul_rn(y, scale));
  // step 6: decided on t: overflow to inf, underflow to +0; a NaN loses its sign and is quiet
  if (t >= ucrt_f64(UCRT_EXP_HIGH)) result = __uint_as_float(UCRT_F32_INF);
  if (t < ucrt_f64(UCRT_EXP_LOW)) result = 0.0f;
  const unsigned ax = __float_as_uint(x) & UCRT_ABS_MASK;
  if (ax > UCRT_F32_INF) result = __uint_as_float(ax | UCRT_QUIET_BIT);
  return result;
}

// sin(r) for |r| up to about pi/4
__device__ __forceinline__ double sin_polynomial(double r) {
  // step 1: p = S3 + S5 z + S7 z^2 + S9 z^3 by Horner, z = r^2
  const double z = __dmul_rn(r, r);
  double p = __fma_rn(z, ucrt_f64(UCRT_S9), ucrt_f64(UCRT_S7));
  p = __fma_rn(z, p, ucrt_f64(UCRT_S5));
  p = __fma_rn(z, p, ucrt_f64(UCRT_S3));
  // step 2: r + p * r^3
  return __fma_rn(p, __dmul_rn(r, z), r);
}

// cos(r) for |r| up to about pi/4
__device__ __forceinline__ double cos_polynomial(double r) {
  // step 1: p = C4 + C6 z + C8 z^2 + C10 z^3 by Horner, z = r^2
  const double z = __dmul_rn(r, r);
  double p = __fma_rn(z, ucrt_f64(UCRT_C10), ucrt_f64(UCRT_C8));
  p = __fma_rn(z, p, ucrt_f64(UCRT_C6));
  p = __fma_rn(z, p, ucrt_f64(UCRT_C4));
  // step 2: (1 - z/2) + p * z^2
  return __fma_rn(p, __dmul_rn(z, z),
                  __dsub_rn(ucrt_f64(UCRT_ONE), __dmul_rn(ucrt_f64(UCRT_HALF), z)));
}

// a = n * pi/2 + r, for a > 0 with a * 2/pi below 2^31
__device__ __forceinline__ double reduce_medium(double a, unsigned long long& n) {
  // step 1: n = a * 2/pi + 0.5, rounded once, then cut to an integer
  n = (unsigned long long)__fma_rn(ucrt_f64(UCRT_TWO_OVER_PI), a, ucrt_f64(UCRT_HALF));
  // step 2: r = (a - n * P1) - n * P2: the first part rounded once, the second twice
  const double turns = (double)n;
  const double head = __fma_rn(-turns, ucrt_f64(UCRT_P1), a);
  return __dsub_rn(head, __dmul_rn(turns, ucrt_f64(UCRT_P2)));
}

// quadrant n and fraction f0 + f1 of a quadrant (Payne-Hanek); ax: bits of a float >= 2^24
__device__ __forceinline__ double reduce_huge(unsigned ax, unsigned long long& n, double& f1) {
  // step 1: e = exponent, m = significand in 53 bits; the words of 2/pi at byte 15 - e/8
  const unsigned long long bits =
      (unsigned long long)__double_as_longlong((double)__uint_as_float(ax));
  const int e = (int)(bits >> 52) - 1023;
  const unsigned long long m = (bits & 0x000fffffffffffff) | 0x0010000000000000;
  const int at = 15 - (e >> 3);
  const unsigned long long k0 = UCRT_TWO_OVER_PI_WORDS[at];
  const unsigned long long k1 = UCRT_TWO_OVER_PI_WORDS[at + 8];
  const unsigned long long k2 = UCRT_TWO_OVER_PI_WORDS[at + 16];
  // step 2: w2:w1:w0 = (k2:k1:k0) * m, the low 192 bits
  unsigned long long w0 = k0 * m;
  const unsigned long long low = k1 * m;
  unsigned long long w1 = low + __umul64hi(k0, m);
  const unsigned long long carry = w1 < low;
  unsigned long long w2 = k2 * m + __umul64hi(k1, m) + carry;
  // step 3: n = the two integer bits, rounded by the half bit below them
  const int s = e & 7;
  const unsigned long long half = (w2 >> (53 - s)) & 1;
  n = ((w2 >> (54 - s)) + half) & 3;
  // step 4: above one half: the one's complement (not two's), and negative
  const unsigned long long flip = 0 - half;
  w0 ^= flip;
  w1 ^= flip;
  w2 ^= flip;
  // step 5: clear the integer bits, then shift the highest set bit up to bit 52
  // (w2 and w1 are never 0: true of every float from 2^24 on)
  w2 &= 0xffffffffffffffff >> (10 + s);
  const int h = 63 - __clzll((long long)w2);
  const int c = 52 - h;
  w2 = (w2 << c) | ((w1 >> 1) >> (63 - c));
  w1 = (w1 << c) | ((w0 >> 1) >> (63 - c));
  // step 6: f0 = the fraction cut to 53 bits; f1 = the bits after it, cut to 53 bits
  const unsigned long long sign = half << 63;
  const int exponent = s + h + 1023 - 54;
  const int zeros = __clzll((long long)w1);
  const unsigned long long tail = ((w1 << zeros) << 1) >> 12;
  f1 = ucrt_f64(sign | ((unsigned long long)(exponent + 63 - zeros - 116) << 52) | tail);
  return ucrt_f64(sign | ((unsigned long long)exponent << 52) | (w2 & 0x000fffffffffffff));
}

// (f0 + f1) * pi/2 with pi/2 in three pieces, as cosf does it
__device__ __forceinline__ double huge_angle_cos(double f0, double f1) {
  // step 1: c = f0 * pi/2, and what that rounding lost, from the halves of f0
  const double high =
      ucrt_f64((unsigned long long)__double_as_longlong(f0) & 0xfffffffff8000000);
  const double low = __dsub_rn(f0, high);
  const double c = __dmul_rn(f0, ucrt_f64(UCRT_PIO2));
  double d = __dsub_rn(__dmul_rn(high, ucrt_f64(UCRT_Q1)), c);
  d = __fma_rn(low, ucrt_f64(UCRT_Q1), d);
  d = __fma_rn(high, ucrt_f64(UCRT_Q2), d);
  d = __fma_rn(low, ucrt_f64(UCRT_Q2), d);
  // step 2: the third piece, and f1
  const double u =
      __fma_rn(f0, ucrt_f64(UCRT_Q3), __dmul_rn(f1, ucrt_f64(UCRT_PIO2)));
  return __dadd_rn(c, __dadd_rn(d, u));
}

// cos(x), every argument reduced
__device__ __forceinline__ float ucrt_cosf(float x) {
  const unsigned bits = __float_as_uint(x);
  const unsigned ax = bits & UCRT_ABS_MASK;
  const double wide = (double)x;
  // step 1: a NaN returns itself, quiet; inf returns the NaN of an invalid argument
  if (ax >= UCRT_F32_INF)
    return __uint_as_float(ax > UCRT_F32_INF ? bits | UCRT_QUIET_BIT : UCRT_F32_INVALID);
  // step 2: below 2^-13 the result is 1
  if (ax < UCRT_TRIG_ONE_TERM) return __uint_as_float(UCRT_F_ONE);
  // step 3: below 2^-7 two terms: 1 - x^2/2
  if (ax < UCRT_TRIG_TWO_TERMS)
    return __double2float_rn(
        __fma_rn(-__dmul_rn(wide, ucrt_f64(UCRT_HALF)), wide, ucrt_f64(UCRT_ONE)));
  // step 4: up to pi/4 the polynomial of x itself
  if (ax <= UCRT_TRIG_DIRECT) return __double2float_rn(cos_polynomial(wide));
  // step 5: n and r, by Payne-Hanek from 3.3732595e9 on
  unsigned long long n;
  double r;
  if (ax < UCRT_COS_HUGE) {
    r = reduce_medium((double)__uint_as_float(ax), n);
  } else {
    double f1;
    const double f0 = reduce_huge(ax, n, f1);
    r = huge_angle_cos(f0, f1);
  }
  // step 6: SIN(r) for odd n, else COS(r); negated for n mod 4 = 1 and 2; rounded to float32
  const double value = (n & 1) ? sin_polynomial(r) : cos_polynomial(r);
  return __double2float_rn(((n ^ (n >> 1)) & 1) ? -value : value);
}

// sin(x), every argument reduced
__device__ __forceinline__ float ucrt_sinf(float x) {
  const unsigned bits = __float_as_uint(x);
  const unsigned ax = bits & UCRT_ABS_MASK;
  const double wide = (double)x;
  // step 1: a NaN returns itself, quiet; inf returns the NaN of an invalid argument
  if (ax >= UCRT_F32_INF)
    return __uint_as_float(ax > UCRT_F32_INF ? bits | UCRT_QUIET_BIT : UCRT_F32_INVALID);
  // step 2: below 2^-13 the argument itself, so that -0 and subnormals stay
  if (ax < UCRT_TRIG_ONE_TERM) return x;
  // step 3: below 2^-7 two terms: x - x^3/6
  if (ax < UCRT_TRIG_TWO_TERMS)
    return __double2float_rn(
        __fma_rn(-__dmul_rn(__dmul_rn(wide, wide), wide), ucrt_f64(UCRT_SIXTH), wide));
  // step 4: up to pi/4 the polynomial of x itself
  if (ax <= UCRT_TRIG_DIRECT) return __double2float_rn(sin_polynomial(wide));
  // step 5: n and r, by Payne-Hanek from 16779436 on
  unsigned long long n;
  double r;
  if (ax < UCRT_SIN_HUGE) {
    r = reduce_medium((double)__uint_as_float(ax), n);
  } else {
    double f1;
    const double f0 = reduce_huge(ax, n, f1);
    r = __dmul_rn(f0, ucrt_f64(UCRT_PIO2));
  }
  // step 6: COS(r) for odd n, else SIN(r); negated when n mod 4 >= 2 or x < 0, not both; rounded
  const double value = (n & 1) ? cos_polynomial(r) : sin_polynomial(r);
  const bool negative = ((n >> 1) & 1) != (bits >> 31);
  return __double2float_rn(negative ? -value : value);
}

// logf where it is no finite number: bits of a zero, a negative, an inf or a NaN
__device__ __forceinline__ float log_special(unsigned bits) {
  const unsigned ax = bits & UCRT_ABS_MASK;
  // step 1: a NaN returns itself, quiet; a zero of either sign -inf
  if (ax > UCRT_F32_INF) return __uint_as_float(bits | UCRT_QUIET_BIT);
  if (ax == 0) return __uint_as_float(UCRT_F32_MINUS_INF);
  // step 2: +inf returns itself; the negative ones the NaN of an invalid argument
  return __uint_as_float(bits == ax ? bits : UCRT_F32_INVALID);
}

// log(1 + d) for |d| < 0.0625
__device__ __forceinline__ float log_near_one(float d) {
  // step 1: u = d/(d + 2), w = 2u, v = w^2
  const float u = __fdiv_rn(d, __fadd_rn(d, __uint_as_float(UCRT_F_TWO)));
  const float k = __fmul_rn(d, u);
  const float w = __fadd_rn(u, u);
  const float v = __fmul_rn(w, w);
  const float w3 = __fmul_rn(w, v);
  // step 2: d + (w^3/12 + w^5/80 - d * u)
  const float p =
      __fmaf_rn(v, __uint_as_float(UCRT_LOG_NEAR_5), __uint_as_float(UCRT_LOG_NEAR_3));
  return __fadd_rn(d, __fmaf_rn(p, w3, -k));
}

// log(x), in float32 arithmetic
__device__ __forceinline__ float ucrt_logf(float x) {
  const unsigned bits = __float_as_uint(x);
  const unsigned ax = bits & UCRT_ABS_MASK;
  // step 1: zero, negative, inf and NaN
  if (ax == 0 || bits >= UCRT_F32_INF) return log_special(bits);
  // step 2: within 0.0625 of one, the series
  const float d = __fsub_rn(x, __uint_as_float(UCRT_F_ONE));
  if (fabsf(d) < __uint_as_float(UCRT_LOG_NEAR_BAND)) return log_near_one(d);
  // step 3: e = exponent, f = significand bits; a subnormal is scaled by taking 1 off 1.f
  int e = (int)(bits >> 23) - 127;
  unsigned f = bits & 0x007fffff;
  if (bits < 0x00800000) {
    const unsigned scaled = __float_as_uint(
        __fsub_rn(__uint_as_float(f | UCRT_F_ONE), __uint_as_float(UCRT_F_ONE)));
    e = (int)(scaled >> 23) - 253;
    f = scaled & 0x007fffff;
  }
  // step 4: y = significand in [0.5, 1), near = y to 7 bits, i = its index
  const unsigned index = (f & 0x007f0000) + ((f & 0x00008000) << 1);
  const unsigned i = index >> 16;
  const float y = __uint_as_float(f | UCRT_F_HALF);
  const float near = __uint_as_float(index | UCRT_F_HALF);
  // step 5: r = (near - y) / near by the table, p = r + r^2/2 + r^3/3
  const float r = __fmul_rn(__fsub_rn(near, y), __uint_as_float(UCRT_LOG_INVERSE[i]));
  const float q = __fmaf_rn(r, __uint_as_float(UCRT_LOG_THIRD), __uint_as_float(UCRT_F_HALF));
  const float p = __fmaf_rn(q, __fmul_rn(r, r), r);
  // step 6: e * ln 2 + log(near) - p, the small parts first
  const float turns = __int2float_rn(e);
  const float low = __fadd_rn(__fmaf_rn(turns, __uint_as_float(UCRT_LOG_LN2_LOW), -p),
                              __uint_as_float(UCRT_LOG_TAIL[i]));
  const float high = __fmaf_rn(turns, __uint_as_float(UCRT_LOG_LN2_HIGH),
                               __uint_as_float(UCRT_LOG_LEAD[i]));
  return __fadd_rn(high, low);
}

// 1 / (1 + expf(-x)). Contract 1.9
__device__ __forceinline__ float sigmoid(float x) {
  // step 1: expf, addition and division, each rounded
  return __fdiv_rn(1.0f, __fadd_rn(1.0f, ucrt_expf(-x)));
}

// x * sigmoid(x). Contract 1.9
__device__ __forceinline__ float silu(float x) {
  // step 1: the product is rounded once more
  return __fmul_rn(x, sigmoid(x));
}

// x above 20, else logf(1 + expf(x)). Contract 1.9
__device__ __forceinline__ float softplus(float x) {
  // step 1: 20 itself still goes through the logarithm
  if (x > 20.0f) return x;
  return ucrt_logf(__fadd_rn(1.0f, ucrt_expf(x)));
}
