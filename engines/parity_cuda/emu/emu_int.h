// Integer intrinsics, atomics, fences, cached loads.
#pragma once
#include "emu_base.h"

// ---- min, max, abs; mixed signedness takes the unsigned type, as in CUDA
#define EMU_MIN_MAX(R, A, B)                                                  \
  EMU_INLINE R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; }            \
  EMU_INLINE R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; }
#define EMU_MIN_MAX_PAIR(S, U)  \
  EMU_MIN_MAX(S, S, S)          \
  EMU_MIN_MAX(U, U, U)          \
  EMU_MIN_MAX(U, S, U)          \
  EMU_MIN_MAX(U, U, S)
EMU_MIN_MAX_PAIR(int, unsigned)
EMU_MIN_MAX_PAIR(long, unsigned long)
EMU_MIN_MAX_PAIR(long long, unsigned long long)
EMU_INLINE int abs(int a) { return a < 0 ? (int)(0u - (unsigned)a) : a; }
EMU_INLINE long long abs(long long a) {
  return a < 0 ? (long long)(0ull - (unsigned long long)a) : a;
}
EMU_INLINE long long llabs(long long a) { return abs(a); }

// ---- bits
EMU_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
EMU_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
EMU_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
EMU_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
EMU_INLINE int __ffs(int x) { return __builtin_ffs(x); }
EMU_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
EMU_INLINE unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
EMU_INLINE unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
EMU_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}
EMU_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
EMU_INLINE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
EMU_INLINE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
EMU_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = (uint64_t)y << 32 | x;
  // Bit 3 of a nibble is not used. Written out: a loop is not unrolled where the selector is known.
  const unsigned byte0 = (unsigned)(bytes >> 8 * (selector & 7)) & 0xff;
  const unsigned byte1 = (unsigned)(bytes >> 8 * (selector >> 4 & 7)) & 0xff;
  const unsigned byte2 = (unsigned)(bytes >> 8 * (selector >> 8 & 7)) & 0xff;
  const unsigned byte3 = (unsigned)(bytes >> 8 * (selector >> 12 & 7)) & 0xff;
  return byte3 << 24 | byte2 << 16 | byte1 << 8 | byte0;
}

// ---- products
EMU_INLINE int __mulhi(int a, int b) { return (int)(((int64_t)a * b) >> 32); }
EMU_INLINE unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
EMU_INLINE long long __mul64hi(long long a, long long b) {
  return (long long)(((__int128)a * b) >> 64);
}
EMU_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}

namespace emu {

// Adds up products of `count` integers from a's bytes or halves and b's bytes; wraps like PTX.
template <class A, class B>
EMU_INLINE unsigned dot(unsigned a, unsigned b, unsigned sum, int count) {
  for (int i = 0; i < count; i++) {
    const A left = (A)(a >> (8 * sizeof(A) * i));
    const B right = (B)(b >> (8 * sizeof(B) * i));
    sum += (unsigned)left * (unsigned)right;
  }
  return sum;
}

}  // namespace emu

EMU_INLINE int __dp4a(int a, int b, int c) {
  return (int)emu::dot<int8_t, int8_t>((unsigned)a, (unsigned)b, (unsigned)c, 4);
}
EMU_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  return emu::dot<uint8_t, uint8_t>(a, b, c, 4);
}
EMU_INLINE int __dp4a(char4 a, char4 b, int c) {
  return __dp4a(emu::bits<int>(a), emu::bits<int>(b), c);
}
EMU_INLINE unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
  return __dp4a(emu::bits<unsigned>(a), emu::bits<unsigned>(b), c);
}
// lo: the two low bytes of b; hi: the two high ones
EMU_INLINE int __dp2a_lo(int a, int b, int c) {
  return (int)emu::dot<int16_t, int8_t>((unsigned)a, (unsigned)b, (unsigned)c, 2);
}
EMU_INLINE int __dp2a_hi(int a, int b, int c) { return __dp2a_lo(a, (int)((unsigned)b >> 16), c); }
EMU_INLINE unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
  return emu::dot<uint16_t, uint8_t>(a, b, c, 2);
}
EMU_INLINE unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) {
  return __dp2a_lo(a, b >> 16, c);
}

// ---- memory
EMU_INLINE void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
EMU_INLINE void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
EMU_INLINE void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
template <class V>
EMU_INLINE V __ldg(const V* p) {
  return *p;
}
template <class V>
EMU_INLINE V __ldcg(const V* p) {
  return *p;
}
template <class V>
EMU_INLINE V __ldcs(const V* p) {
  return *p;
}

// ---- atomics: relaxed, as on the device
namespace emu {

// Replaces *p by change(*p) in one step and returns what was there.
template <class V, class Change>
EMU_INLINE V update(V* p, Change change) {
  V before, after;
  __atomic_load(p, &before, __ATOMIC_RELAXED);
  do {
    after = change(before);
  } while (
      !__atomic_compare_exchange(p, &before, &after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return before;
}

}  // namespace emu

#define EMU_ATOMICS(V)                                                                         \
  EMU_INLINE V atomicAdd(V* p, V v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }     \
  EMU_INLINE V atomicAnd(V* p, V v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }     \
  EMU_INLINE V atomicOr(V* p, V v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }       \
  EMU_INLINE V atomicXor(V* p, V v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); }     \
  EMU_INLINE V atomicExch(V* p, V v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); }   \
  EMU_INLINE V atomicMax(V* p, V v) { return emu::update(p, [=](V o) { return max(o, v); }); } \
  EMU_INLINE V atomicMin(V* p, V v) { return emu::update(p, [=](V o) { return min(o, v); }); } \
  EMU_INLINE V atomicCAS(V* p, V old, V v) {                                                   \
    __atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);        \
    return old;                                                                                \
  }
EMU_ATOMICS(int)
EMU_ATOMICS(unsigned)
EMU_ATOMICS(unsigned long long)
EMU_INLINE int atomicSub(int* p, int v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }
EMU_INLINE unsigned atomicSub(unsigned* p, unsigned v) {
  return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED);
}
EMU_INLINE unsigned atomicInc(unsigned* p, unsigned limit) {
  return emu::update(p, [=](unsigned old) { return old >= limit ? 0u : old + 1; });
}
// Order-dependent, so no kernel of the exact tier may use them; a shuffled schedule shows it.
EMU_INLINE float atomicAdd(float* p, float v) {
  return emu::update(p, [=](float old) { return old + v; });
}
EMU_INLINE double atomicAdd(double* p, double v) {
  return emu::update(p, [=](double old) { return old + v; });
}
