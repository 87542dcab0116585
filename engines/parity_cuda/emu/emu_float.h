// Arithmetic with one IEEE rounding an operation, as the device computes it without -fmad.
//
// Equal to an H200 in every bit except NaN payloads (the device returns 0x7fffffff).
#pragma once
#include "emu_base.h"

// ---- named operations
EMU_INLINE float __fadd_rn(float a, float b) { return a + b; }
EMU_INLINE float __fsub_rn(float a, float b) { return a - b; }
EMU_INLINE float __fmul_rn(float a, float b) { return a * b; }
EMU_INLINE float __fdiv_rn(float a, float b) { return a / b; }
EMU_INLINE float __frcp_rn(float a) { return 1.0f / a; }
EMU_INLINE float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
EMU_INLINE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
EMU_INLINE double __dadd_rn(double a, double b) { return a + b; }
EMU_INLINE double __dsub_rn(double a, double b) { return a - b; }
EMU_INLINE double __dmul_rn(double a, double b) { return a * b; }
EMU_INLINE double __ddiv_rn(double a, double b) { return a / b; }
EMU_INLINE double __drcp_rn(double a) { return 1.0 / a; }
EMU_INLINE double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
EMU_INLINE double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }

// ---- exact or correctly rounded functions; overloads as in CUDA C++
#define EMU_UNARY(name)                                              \
  EMU_INLINE float name##f(float a) { return __builtin_##name##f(a); } \
  EMU_INLINE double name(double a) { return __builtin_##name(a); }     \
  EMU_INLINE float name(float a) { return __builtin_##name##f(a); }
EMU_UNARY(sqrt)
EMU_UNARY(fabs)
EMU_UNARY(rint)
EMU_UNARY(floor)
EMU_UNARY(ceil)
EMU_UNARY(trunc)
EMU_UNARY(round)
EMU_INLINE float nearbyintf(float a) { return __builtin_rintf(a); }
EMU_INLINE double nearbyint(double a) { return __builtin_rint(a); }
EMU_INLINE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
EMU_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
EMU_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
EMU_INLINE float copysignf(float a, float b) { return __builtin_copysignf(a, b); }
EMU_INLINE double copysign(double a, double b) { return __builtin_copysign(a, b); }
EMU_INLINE float copysign(float a, float b) { return __builtin_copysignf(a, b); }
EMU_INLINE bool isnan(float a) { return a != a; }
EMU_INLINE bool isnan(double a) { return a != a; }
EMU_INLINE bool isinf(float a) { return __builtin_fabsf(a) == __builtin_inff(); }
EMU_INLINE bool isinf(double a) { return __builtin_fabs(a) == __builtin_inf(); }
EMU_INLINE bool isfinite(float a) { return __builtin_fabsf(a) < __builtin_inff(); }
EMU_INLINE bool isfinite(double a) { return __builtin_fabs(a) < __builtin_inf(); }
EMU_INLINE bool signbit(float a) { return emu::bits<uint32_t>(a) >> 31; }
EMU_INLINE bool signbit(double a) { return emu::bits<uint64_t>(a) >> 63; }

namespace emu {

// PTX min and max: a NaN loses to a number, and -0 < +0. minss and maxss of x86 do neither.
template <class Word, class V>
EMU_INLINE V maximum(V a, V b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return bits<V>((Word)(bits<Word>(a) & bits<Word>(b)));
  return a > b ? a : b;
}
template <class Word, class V>
EMU_INLINE V minimum(V a, V b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return bits<V>((Word)(bits<Word>(a) | bits<Word>(b)));
  return a < b ? a : b;
}

// Float to integer saturates on the device. A NaN gives 0 from float to 32 bits, otherwise only
// the top bit set (PTX ISA, cvt).
template <class To, class From>
EMU_INLINE To saturate(From x) {
  constexpr bool is_signed = (To)-1 < (To)0;
  constexpr int width = sizeof(To) * 8;
  constexpr To top_bit = (To)(1ull << (width - 1));
  constexpr To least = is_signed ? top_bit : (To)0;
  constexpr To most = (To)~least;
  constexpr From limit = (From)(1ull << (width - 1)) * (is_signed ? 1 : 2);  // a power of two
  if (x != x) return sizeof(From) == 4 && sizeof(To) == 4 ? (To)0 : top_bit;
  if (x >= limit) return most;
  if (x <= (is_signed ? -limit : (From)0)) return least;
  return (To)x;
}

}  // namespace emu

EMU_INLINE float fmaxf(float a, float b) { return emu::maximum<uint32_t>(a, b); }
EMU_INLINE float fminf(float a, float b) { return emu::minimum<uint32_t>(a, b); }
EMU_INLINE double fmax(double a, double b) { return emu::maximum<uint64_t>(a, b); }
EMU_INLINE double fmin(double a, double b) { return emu::minimum<uint64_t>(a, b); }
EMU_INLINE float fmax(float a, float b) { return fmaxf(a, b); }
EMU_INLINE float fmin(float a, float b) { return fminf(a, b); }
EMU_INLINE float max(float a, float b) { return fmaxf(a, b); }
EMU_INLINE float min(float a, float b) { return fminf(a, b); }
EMU_INLINE double max(double a, double b) { return fmax(a, b); }
EMU_INLINE double min(double a, double b) { return fmin(a, b); }
EMU_INLINE float abs(float a) { return __builtin_fabsf(a); }
EMU_INLINE double abs(double a) { return __builtin_fabs(a); }

// ---- float to integer: rn to nearest even, rz to zero, rd down, ru up
#define EMU_TO_INTEGER(From, to, To)                                             \
  EMU_INLINE To __##From##2##to##_rn(From x) { return emu::saturate<To>(rint(x)); }  \
  EMU_INLINE To __##From##2##to##_rz(From x) { return emu::saturate<To>(trunc(x)); } \
  EMU_INLINE To __##From##2##to##_rd(From x) { return emu::saturate<To>(floor(x)); } \
  EMU_INLINE To __##From##2##to##_ru(From x) { return emu::saturate<To>(ceil(x)); }
EMU_TO_INTEGER(float, int, int)
EMU_TO_INTEGER(float, uint, unsigned)
EMU_TO_INTEGER(float, ll, long long)
EMU_TO_INTEGER(float, ull, unsigned long long)
EMU_TO_INTEGER(double, int, int)
EMU_TO_INTEGER(double, uint, unsigned)
EMU_TO_INTEGER(double, ll, long long)
EMU_TO_INTEGER(double, ull, unsigned long long)

// ---- integer to float, to nearest even; int and unsigned to double are exact
EMU_INLINE float __int2float_rn(int x) { return (float)x; }
EMU_INLINE float __uint2float_rn(unsigned x) { return (float)x; }
EMU_INLINE float __ll2float_rn(long long x) { return (float)x; }
EMU_INLINE float __ull2float_rn(unsigned long long x) { return (float)x; }
EMU_INLINE double __int2double_rn(int x) { return (double)x; }
EMU_INLINE double __uint2double_rn(unsigned x) { return (double)x; }
EMU_INLINE double __ll2double_rn(long long x) { return (double)x; }
EMU_INLINE double __ull2double_rn(unsigned long long x) { return (double)x; }
EMU_INLINE float __double2float_rn(double x) { return (float)x; }

// ---- bit casts
EMU_INLINE int __float_as_int(float x) { return emu::bits<int>(x); }
EMU_INLINE unsigned __float_as_uint(float x) { return emu::bits<unsigned>(x); }
EMU_INLINE float __int_as_float(int x) { return emu::bits<float>(x); }
EMU_INLINE float __uint_as_float(unsigned x) { return emu::bits<float>(x); }
EMU_INLINE long long __double_as_longlong(double x) { return emu::bits<long long>(x); }
EMU_INLINE double __longlong_as_double(long long x) { return emu::bits<double>(x); }
EMU_INLINE int __double2hiint(double x) { return (int)(emu::bits<uint64_t>(x) >> 32); }
EMU_INLINE int __double2loint(double x) { return (int)emu::bits<uint64_t>(x); }
EMU_INLINE double __hiloint2double(int high, int low) {
  return emu::bits<double>((uint64_t)(unsigned)high << 32 | (unsigned)low);
}
