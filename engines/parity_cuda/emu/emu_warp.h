// Warp operations: shuffles, votes, __syncwarp; barriers by number; and the names kernels use for all
// of this.
#pragma once
#include "emu_block.h"

namespace emu {

enum WarpOperation { kSyncWarp, kShuffle, kVote };

EMU_OUTLINE void check_gathering(Gathering* g, Block* b, Thread* t, unsigned mask, int operation,
                                 Site site) {
  const int lane = t->index % kLanes;
  const unsigned returned = b->warps[t->index / kLanes].returned;
  if (!(mask >> lane & 1)) {
    fail("%s:%d: thread %d is lane %d, which its own mask 0x%08x leaves out", site->file,
         site->line, t->index, lane, mask);
  }
  if (mask & returned) {
    fail("%s:%d: thread %d waits for lanes that have returned: mask 0x%08x, returned 0x%08x",
         site->file, site->line, t->index, mask, returned);
  }
  if (!g->arrived) return;
  if (g->mask != mask) {
    fail("%s:%d: thread %d gives the mask 0x%08x, other lanes 0x%08x", site->file, site->line,
         t->index, mask, g->mask);
  }
  if (g->operation != operation || !same(g->site, site)) {
    fail("divergent warp operation: thread %d at %s:%d, other lanes at %s:%d", t->index, site->file,
         site->line, g->site->file, g->site->line);
  }
}

// The last lane has come: each gets its result here, before any of them can hand in another.
EMU_NOTSAN inline void exchange(Thread* lanes, unsigned mask, int operation) {
  if (operation == kSyncWarp) return;
  unsigned votes = 0;
  for (unsigned m = mask; m; m &= m - 1) {
    Thread* t = &lanes[__builtin_ctz(m)];
    votes |= (unsigned)(t->give & 1) << __builtin_ctz(m);
    // A lane that is not in the mask has no value: the reader gets all ones, a NaN as float.
    if (operation == kShuffle) t->take = mask >> t->from & 1 ? lanes[t->from].give : ~0ull;
  }
  if (operation != kVote) return;
  for (unsigned m = mask; m; m &= m - 1) lanes[__builtin_ctz(m)].take = votes;
}

EMU_OUTLINE uint64_t gather(Site site, int operation, unsigned mask, uint64_t give, int from) {
  Thread* t = T;
  Block* b = B;
  const int first = t->index & ~(kLanes - 1), lane = t->index - first;
  // The last warp may be cut short: its missing lanes are no part of a full mask.
  if (b->count - first < kLanes) mask &= (1u << (b->count - first)) - 1;
  Gathering* g = &b->warps[first / kLanes].gatherings[mask ? __builtin_ctz(mask) : 0];
  if (!(mask >> lane & 1) || mask & b->warps[first / kLanes].returned ||
      (g->arrived && (g->mask != mask || g->operation != operation || g->site != site))) {
    check_gathering(g, b, t, mask, operation, site);
  }
  g->mask = mask;
  g->operation = operation;
  g->site = t->site = site;
  g->arrived |= 1u << lane;
  t->give = give;
  t->from = (uint8_t)from;
  t->state = kWarpWait;
#ifdef EMU_TSAN
  const int place = (int)(g - b->warps[first / kLanes].gatherings);
  char* sync = &b->syncs->warp[first / kLanes][place][g->round & 1];
  // Shuffles and votes order no memory accesses (CUDA programming guide, warp shuffle functions).
  if (operation == kSyncWarp) __tsan_release(sync);
#endif
  if (g->arrived == mask) {
    g->arrived = 0;
#ifdef EMU_TSAN
    g->round++;
#endif
    exchange(&b->threads[first], mask, operation);
    release_group(b, first, mask);
  }
  wait(b, t);
#ifdef EMU_TSAN
  if (operation == kSyncWarp) __tsan_acquire(sync);
#endif
  return t->take;
}

EMU_INLINE int lane_of_thread() { return T->index % kLanes; }

template <class V>
EMU_INLINE V shuffle_from(Site site, unsigned mask, V value, int from) {
  static_assert(sizeof(V) == 4 || sizeof(V) == 8, "shuffles move 4 or 8 bytes");
  uint64_t give = 0;
  memcpy(&give, &value, sizeof value);
  const uint64_t take = gather(site, kShuffle, mask, give, from);
  memcpy(&value, &take, sizeof value);
  return value;
}
template <class V>
EMU_INLINE V shuffle(Site site, unsigned mask, V value, int from, int width = kLanes) {
  const int segment = lane_of_thread() & ~(width - 1);
  return shuffle_from(site, mask, value, segment | (from & (width - 1)));
}
template <class V>
EMU_INLINE V shuffle_xor(Site site, unsigned mask, V value, int with, int width = kLanes) {
  const int lane = lane_of_thread(), end = (lane & ~(width - 1)) + width, from = lane ^ with;
  return shuffle_from(site, mask, value, from < end ? from : lane);
}
template <class V>
EMU_INLINE V shuffle_down(Site site, unsigned mask, V value, unsigned by, int width = kLanes) {
  const int lane = lane_of_thread(), end = (lane & ~(width - 1)) + width, from = lane + (int)by;
  return shuffle_from(site, mask, value, from < end ? from : lane);
}
template <class V>
EMU_INLINE V shuffle_up(Site site, unsigned mask, V value, unsigned by, int width = kLanes) {
  const int lane = lane_of_thread(), first = lane & ~(width - 1), from = lane - (int)by;
  return shuffle_from(site, mask, value, from >= first ? from : lane);
}
EMU_INLINE unsigned ballot(Site site, unsigned mask, bool predicate) {
  return (unsigned)gather(site, kVote, mask, predicate, 0);
}
EMU_INLINE bool all_lanes(Site site, unsigned mask, bool predicate) {
  return ballot(site, mask, !predicate) == 0;
}
// bar.sync (waits) and bar.arrive of PTX: `expected` threads come to barrier `number`.
EMU_OUTLINE void named_barrier(Site site, int number, int expected, bool waits) {
  Thread* t = T;
  Block* b = B;
  if (number < 1 || number >= kBarriers || expected < 1 || expected % kLanes) {
    fail("%s:%d: barrier %d of %d threads: numbers go from 1 to %d, threads by %d", site->file,
         site->line, number, expected, kBarriers - 1, kLanes);
  }
  Named* g = &b->named[number];
  if (g->arrived && g->expected != expected) {
    fail("%s:%d: thread %d expects %d threads at barrier %d, others %d", site->file, site->line,
         t->index, expected, number, g->expected);
  }
  g->expected = expected;
  g->site = t->site = site;
#ifdef EMU_TSAN
  char* sync = &b->syncs->named[number][g->round & 1];
  __tsan_release(sync);
#endif
  if (waits) {
    t->state = kNamedWait;
    g->waiting[t->index / kLanes] |= 1u << t->index % kLanes;
  }
  if (++g->arrived == expected) {
    g->arrived = 0;
#ifdef EMU_TSAN
    g->round++;
#endif
    for (int w = 0; w * kLanes < b->count; w++) {
      if (g->waiting[w]) release_group(b, w * kLanes, g->waiting[w]);
      g->waiting[w] = 0;
    }
  }
  if (!waits) {
    // Others may go on first: what this thread does from here on is not ordered before them.
    if (b->run_ahead) return;
    t->state = kNamedWait;
    release_group(b, t->index & ~(kLanes - 1), 1u << t->index % kLanes);
    return wait(b, t);
  }
  wait(b, t);
#ifdef EMU_TSAN
  __tsan_acquire(sync);
#endif
}

struct SyncWarp {  // an object, as a macro cannot have a default argument
  Site site;
  void operator()(unsigned mask = 0xffffffffu) const {
    gather(site, kSyncWarp, mask, 0, 0);
  }
};

}  // namespace emu

#define threadIdx (emu::T->tid)
#define blockIdx (emu::B->block_index)
#define blockDim (emu::B->block_dim)
#define gridDim (emu::B->grid_dim)
#define warpSize 32
#define __syncthreads() ((void)emu::block_barrier(EMU_SITE, false))
#define __syncthreads_count(predicate) emu::block_barrier(EMU_SITE, (predicate) != 0)
#define __syncthreads_or(predicate) ((int)(emu::block_barrier(EMU_SITE, (predicate) != 0) != 0))
#define __syncthreads_and(predicate) ((int)(emu::block_barrier(EMU_SITE, (predicate) == 0) == 0))
// For headers that write bar.sync and bar.arrive in PTX (barriers.cuh).
#define emu_barrier_sync(number, threads) emu::named_barrier(EMU_SITE, (number), (threads), true)
#define emu_barrier_arrive(number, threads) emu::named_barrier(EMU_SITE, (number), (threads), false)
#define __syncwarp(...) emu::SyncWarp{EMU_SITE}(__VA_ARGS__)
#define __shfl_sync(...) emu::shuffle(EMU_SITE, __VA_ARGS__)
#define __shfl_xor_sync(...) emu::shuffle_xor(EMU_SITE, __VA_ARGS__)
#define __shfl_down_sync(...) emu::shuffle_down(EMU_SITE, __VA_ARGS__)
#define __shfl_up_sync(...) emu::shuffle_up(EMU_SITE, __VA_ARGS__)
#define __ballot_sync(mask, predicate) emu::ballot(EMU_SITE, (mask), (predicate) != 0)
#define __any_sync(mask, predicate) ((int)(emu::ballot(EMU_SITE, (mask), (predicate) != 0) != 0))
#define __all_sync(mask, predicate) ((int)emu::all_lanes(EMU_SITE, (mask), (predicate) != 0))
#define __trap() emu::fail("%s:%d: thread %d ran into __trap", __FILE__, __LINE__, emu::T->index)
