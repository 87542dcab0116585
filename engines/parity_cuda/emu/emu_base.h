// What everything else stands on: sanitizers, CUDA keywords, vector types.
#pragma once

// A kernel that includes <math.h> gets none of it: its functions would hide those of emu_refuse.h.
#define _MATH_H 1
#define _GLIBCXX_MATH_H 1
#define _GLIBCXX_CMATH 1
#define _GLIBCXX_BITS_STD_ABS_H 1
#define _LIBCPP_MATH_H 1
#define _LIBCPP_CMATH 1

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

// Declared here because stdlib.h and unistd.h would bring abs(int), index, link and the like.
extern "C" int posix_memalign(void**, size_t, size_t) noexcept;
extern "C" int getpagesize() noexcept;

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define EMU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EMU_TSAN 1
#endif
#endif

#ifdef EMU_ASAN
extern "C" void __sanitizer_start_switch_fiber(void**, const void*, size_t);
extern "C" void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
extern "C" void __asan_unpoison_memory_region(void const volatile*, size_t);
#endif
#ifdef EMU_TSAN
extern "C" void* __tsan_get_current_fiber(void);
extern "C" void* __tsan_create_fiber(unsigned);
extern "C" void __tsan_switch_to_fiber(void*, unsigned);
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
// The scheduler's own memory must not look like a race between the threads it schedules.
#define EMU_NOTSAN __attribute__((no_sanitize("thread")))
#else
#define EMU_NOTSAN
#endif
#define EMU_OUTLINE inline EMU_NOTSAN __attribute__((noinline))
#define EMU_INLINE static inline __attribute__((always_inline))

#define __CUDA_EMU__ 1
#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
};

#define EMU_VECTOR2(name, T, alignment)       \
  struct alignas(alignment) name##2 {         \
    T x, y;                                   \
  };                                          \
  EMU_INLINE name##2 make_##name##2(T x, T y) { return {x, y}; }
#define EMU_VECTOR4(name, T, alignment)       \
  struct alignas(alignment) name##4 {         \
    T x, y, z, w;                             \
  };                                          \
  EMU_INLINE name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMU_VECTOR2(char, signed char, 2) EMU_VECTOR4(char, signed char, 4)
EMU_VECTOR2(uchar, unsigned char, 2) EMU_VECTOR4(uchar, unsigned char, 4)
EMU_VECTOR2(short, short, 4) EMU_VECTOR4(short, short, 8)
EMU_VECTOR2(ushort, unsigned short, 4) EMU_VECTOR4(ushort, unsigned short, 8)
EMU_VECTOR2(int, int, 8) EMU_VECTOR4(int, int, 16)
EMU_VECTOR2(uint, unsigned, 8) EMU_VECTOR4(uint, unsigned, 16)
EMU_VECTOR2(longlong, long long, 16) EMU_VECTOR2(ulonglong, unsigned long long, 16)
EMU_VECTOR2(float, float, 8) EMU_VECTOR4(float, float, 16)
EMU_VECTOR2(double, double, 16)
struct float3 {
  float x, y, z;
};
struct int3 {
  int x, y, z;
};
EMU_INLINE float3 make_float3(float x, float y, float z) { return {x, y, z}; }
EMU_INLINE int3 make_int3(int x, int y, int z) { return {x, y, z}; }
EMU_INLINE uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

namespace emu {

// Limits of a launch, from the CUDA programming guide's table of compute capabilities.
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxBlockZ = 64;
constexpr unsigned kMaxGridX = 0x7fffffffu;
constexpr unsigned kMaxGridYZ = 65535;
constexpr size_t kMaxShared = 227 * 1024;  // opt-in maximum of compute capability 9.0

// Every shared array starts at a multiple of it.
constexpr size_t kSharedAlignment = 128;
#define EMU_SHARED_ALIGNMENT(n) \
  static_assert((n) <= emu::kSharedAlignment, "emu: shared memory is aligned to 128 bytes at most");

// A place in a kernel text, for messages and to tell two barriers apart.
struct Place {
  const char* file;
  int line;
};
typedef const Place* Site;
inline bool same(Site a, Site b) {  // instances of a template have a Place each
  return a == b || (a->line == b->line && !strcmp(a->file, b->file));
}
#define EMU_SITE                                            \
  ([]() -> emu::Site {                                      \
    static constexpr emu::Place place = {__FILE__, __LINE__}; \
    return &place;                                          \
  }())

template <class To, class From>
EMU_INLINE To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the width");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace emu
