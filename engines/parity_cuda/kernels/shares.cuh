// shares: which part of some work is whose. Which one does a part changes none of its bits.
#pragma once

// The first of `units` things that is the share of number `at` when `count` share them as evenly as can
// be.
__device__ __forceinline__ int even_share(int units, int at, int count) {
  const unsigned each = (unsigned)units / (unsigned)count;
  return (int)each * at + min(at, units - (int)each * count);
}
