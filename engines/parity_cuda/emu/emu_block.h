// One block: whose turn it is, __syncthreads, shared memory.
//
// A thread runs until it blocks or returns; no thread is ever interrupted. Two places hold what
// can run: the sweep (every thread that has not started, or that a block barrier released, in the
// order of `turn`) and the deque of warp groups (lanes that a warp operation released).
#pragma once
#include "emu_fibers.h"

namespace emu {

enum Order { kAscending = 0, kDescending = 1, kShuffled = 2 };
enum State : uint8_t { kNew, kBlockWait, kNamedWait, kWarpWait, kDone };
constexpr int kLanes = 32;
constexpr int kFibersAtOnce = 32;
constexpr int kBarriers = 16;  // barriers by number; 0 is that of __syncthreads
#ifdef EMU_TSAN
// TSan follows 255 threads at a time from g++ 13 on; with more it forgets some, and misses races.
// The threads of all blocks count on: number 223 shares what TSan knows with number 0. A prime, so
// that the same thread of two blocks seldom does. Two blocks in a row share nothing up to 111
// threads each; of larger ones that meet at barriers TSan may miss a race between the two.
constexpr int kContexts = 223;
// A stack used by two contexts in turn looks like a race: a multiple, and a whole block at a time.
constexpr int kStacks = 5 * kContexts;
#else
constexpr int kStacks = kMaxThreads;
#endif
constexpr int kFiberRoom = (kStacks + kFibersAtOnce - 1) / kFibersAtOnce * kFibersAtOnce;

struct Block;
struct alignas(64) Thread {
  uint3 tid;
  int index;
  Fiber* fiber;
  uint64_t give, take;  // a warp operation: the value handed in, the value got back
  Site site;            // where it waits
  State state;
  uint8_t from;  // a shuffle: the lane it reads
};

// Lanes of one warp that wait for each other; found by the lowest lane of their mask.
struct Gathering {
  unsigned arrived, mask;
  int operation;
  Site site;
#ifdef EMU_TSAN
  unsigned round;
#endif
};
struct Warp {
  unsigned returned;
  Gathering gatherings[kLanes];
};
// A barrier by number: some threads wait in it, others only say that they have come.
struct Named {
  int arrived, expected;
  Site site;
  unsigned waiting[kMaxThreads / kLanes];  // lanes by warp
#ifdef EMU_TSAN
  unsigned round;
#endif
};
struct Group {  // lanes ready to go on
  int first;    // index of the warp's lane 0
  unsigned lanes;
};

struct SharedArray {
  char* memory;
  size_t bytes;
  uint64_t epoch;  // the block run that last filled it
};

#ifdef EMU_TSAN
// What the threads of one block run synchronise by: bytes that TSan knows by their addresses.
struct Syncs {
  // Two in turn: a late thread must not inherit what others did after the barrier it left.
  char barrier[2];
  char warp[kMaxThreads / kLanes][kLanes][2];
  char named[kBarriers][2];
};
// Memory of one block run, kept to the end of the launch: blocks run in no order.
struct Kept {
  Kept* next;
};
#endif

struct Block {
  uint3 block_index;
  dim3 block_dim, grid_dim;
  int count;  // threads
  Order order;
  bool strict;
  unsigned char poison;  // fills shared memory before the block's first look at it
  void (*call)(const char* args);
  const char* args;

  uint64_t epoch, random;
  bool run_ahead;  // a released warp goes on before other threads start
  int alive, cursor, turn_count;
  Order turn_order;
  uint16_t turn[kMaxThreads];
  unsigned head, tail;  // of the ring `ready`; they count on and are taken modulo its size
  Group ready[kMaxThreads];

  int waiting;  // in the block barrier
  Site barrier;
  int votes, verdict;  // predicates that held: in the barrier filling up, in the last one released

  SharedArray* shared;
  char* dynamic;
  size_t dynamic_bytes, dynamic_capacity;

  Fiber main;
  int fiber_count, free_count;
  Fiber* free_fibers[kFiberRoom];
  char failure[512];
#ifdef EMU_TSAN
  void* main_context;
  void* contexts[kContexts];
  int first_stack;  // of the running block; its context is the same, modulo kContexts
  char sync_start, sync_end;
  Syncs* syncs;
  Kept* kept;
  unsigned round;
#endif
  Named named[kBarriers];
  Warp warps[kMaxThreads / kLanes];
  Thread threads[kMaxThreads];
  Fiber fibers[kFiberRoom];
};

// The running block and thread. Not initial-exec: a process has room for some 100 such modules.
inline thread_local Block* B;
inline thread_local Thread* T;

EMU_NOTSAN inline uint64_t next_random(Block* b) {  // splitmix64
  uint64_t z = (b->random += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
// A number below `limit`, from 32 random bits; the bias of limit / 2^32 does not matter here.
EMU_NOTSAN inline unsigned below(unsigned limit, uint64_t random) {
  return (unsigned)(((random & 0xffffffffu) * limit) >> 32);
}

EMU_OUTLINE void shuffle_turn(Block* b) {
  for (int i = b->count - 1; i > 0; i--) {
    const unsigned j = below((unsigned)i + 1, next_random(b));
    const uint16_t held = b->turn[i];
    b->turn[i] = b->turn[j];
    b->turn[j] = held;
  }
}
// The order in which threads start. A shuffled one hangs on the seed alone, not on earlier blocks.
EMU_OUTLINE void set_turn(Block* b) {
  const bool known = b->turn_order == b->order && b->turn_count == b->count;
  if (known && b->order != kShuffled) return;
  for (int i = 0; i < b->count; i++) {
    b->turn[i] = (uint16_t)(b->order == kDescending ? b->count - 1 - i : i);
  }
  b->turn_order = b->order;
  b->turn_count = b->count;
  if (b->order == kShuffled) shuffle_turn(b);
}

EMU_NOTSAN inline Thread* next_lane(Block* b) {
  Group* group = &b->ready[b->head % kMaxThreads];
  int lane = __builtin_ctz(group->lanes);
  if (b->order == kDescending) lane = 31 - __builtin_clz(group->lanes);
  if (b->order == kShuffled) {
    const unsigned turn = (unsigned)next_random(b) & 31;
    const unsigned turned = group->lanes >> turn | group->lanes << (-turn & 31);
    lane = (int)((__builtin_ctz(turned) + turn) & 31);
  }
  group->lanes &= ~(1u << lane);
  if (!group->lanes) b->head++;
  return &b->threads[group->first + lane];
}

// Who runs next; null when every thread has returned or waits.
EMU_NOTSAN inline Thread* next_thread(Block* b) {
  if (b->run_ahead && b->head != b->tail) return next_lane(b);
  while (b->cursor < b->count) {
    Thread* t = &b->threads[b->turn[b->cursor++]];
    if (t->state != kDone) return t;
  }
  return b->head != b->tail ? next_lane(b) : nullptr;
}

EMU_NOTSAN inline void release_group(Block* b, int first, unsigned lanes) {
  const unsigned at = b->run_ahead ? --b->head : b->tail++;
  b->ready[at % kMaxThreads] = {first, lanes};
}

void run_threads();

#ifdef EMU_TSAN
EMU_NOTSAN inline int stack_of(Block* b, int index) { return (b->first_stack + index) % kStacks; }
#endif

EMU_NOTSAN inline void set_current(Block* b, Thread* t) {
  T = t;
#ifdef EMU_TSAN
  // 1: the switch itself orders nothing
  __tsan_switch_to_fiber(b->contexts[stack_of(b, t->index) % kContexts], 1);
#endif
  (void)b;
}

// Leaves the block for the code that started it; this fiber is never resumed.
EMU_NOTSAN __attribute__((noreturn)) inline void leave(Block* b, Fiber* mine) {
#ifdef EMU_TSAN
  __tsan_switch_to_fiber(b->main_context, 1);
#endif
  fiber_switch(mine, &b->main, true);
  __builtin_unreachable();
}

// Gives the whole block up with a message.
__attribute__((format(printf, 1, 2), noreturn)) EMU_OUTLINE void fail(const char* format, ...) {
  Block* b = B;
  const uint3 at = b->block_index;
  int n = snprintf(b->failure, sizeof b->failure, "block (%u,%u,%u): ", at.x, at.y, at.z);
  va_list list;
  va_start(list, format);
  vsnprintf(b->failure + n, sizeof b->failure - (size_t)n, format, list);
  va_end(list);
  leave(b, T->fiber);
}

EMU_OUTLINE Fiber* take_fiber(Block* b, int index) {
#ifdef EMU_TSAN
  Fiber* fiber = &b->fibers[stack_of(b, index)];
#else
  Fiber* fiber = b->free_fibers[--b->free_count];
#endif
  (void)index;
  fiber_prepare(fiber, run_threads, (unsigned)(fiber - b->fibers));
  return fiber;
}

// Maps more stacks until there are `wanted`. False: no memory.
EMU_OUTLINE bool more_fibers(Block* b, int wanted) {
  while (b->fiber_count < wanted) {
    if (!fibers_map(b->fibers + b->fiber_count, kFibersAtOnce)) return false;
    for (int i = kFibersAtOnce - 1; i >= 0; i--) {
      b->free_fibers[b->free_count++] = &b->fibers[b->fiber_count + i];
    }
    b->fiber_count += kFibersAtOnce;
  }
  return true;
}

// Of a block that does not run.
EMU_OUTLINE void no_fibers(Block* b) {
  for (; b->fiber_count > 0; b->fiber_count -= kFibersAtOnce) {
    fibers_unmap(b->fibers + b->fiber_count - kFibersAtOnce, kFibersAtOnce);
  }
  b->free_count = 0;
}

EMU_NOTSAN inline void resume(Block* b, Thread* next, Fiber* mine, bool ends) {
  if (next->state == kNew) {
    if (!b->free_count && !more_fibers(b, b->fiber_count + kFibersAtOnce)) {
      fail("no memory for another stack");
    }
    next->fiber = take_fiber(b, next->index);
  }
  set_current(b, next);
  fiber_switch(mine, next->fiber, ends);
}

EMU_OUTLINE __attribute__((noreturn)) void fail_deadlock(Block* b) {
  int waits[3] = {0, 0, 0};
  Thread* last[3] = {nullptr, nullptr, nullptr};
  for (int i = 0; i < b->count; i++) {
    Thread* t = &b->threads[i];
    if (t->state < kBlockWait || t->state > kWarpWait) continue;
    waits[t->state - kBlockWait]++;
    last[t->state - kBlockWait] = t;
  }
  const char* names[3] = {"__syncthreads", "a barrier by number", "a warp operation"};
  char text[400];
  size_t n = 0;
  text[0] = 0;
  for (int k = 0; k < 3; k++) {
    if (!waits[k] || n >= sizeof text) continue;
    n += (size_t)snprintf(text + n, sizeof text - n, " %d wait in %s (thread %d at %s:%d),",
                          waits[k], names[k], last[k]->index, last[k]->site->file,
                          last[k]->site->line);
  }
  fail("deadlock:%s %d have returned", text, b->count - b->alive);
}

// The running thread waits; comes back when it has been released and its turn has come.
EMU_NOTSAN inline void wait(Block* b, Thread* t) {
  Thread* next = next_thread(b);
  if (!next) fail_deadlock(b);
  if (next != t) resume(b, next, t->fiber, false);
}

EMU_NOTSAN inline void release_block(Block* b) {
  b->waiting = 0;
  b->verdict = b->votes;
  b->votes = 0;
  b->cursor = 0;
  if (b->order == kShuffled) shuffle_turn(b);
#ifdef EMU_TSAN
  b->round++;
#endif
}

EMU_OUTLINE void check_barrier(Block* b, Thread* t, Site site) {
  if (b->alive < b->count) {
    fail("thread %d waits in __syncthreads at %s:%d, but %d of %d threads have returned", t->index,
         site->file, site->line, b->count - b->alive, b->count);
  }
  if (b->waiting && !same(b->barrier, site)) {
    fail("divergent __syncthreads: thread %d at %s:%d, %d others at %s:%d", t->index, site->file,
         site->line, b->waiting, b->barrier->file, b->barrier->line);
  }
}

// Returns how many threads gave a predicate that holds.
EMU_OUTLINE int block_barrier(Site site, bool predicate) {
  Thread* t = T;
  Block* b = B;
#ifdef EMU_TSAN
  char* sync = &b->syncs->barrier[b->round & 1];
  __tsan_release(sync);
#endif
  if (b->strict && (b->alive < b->count || (b->waiting && b->barrier != site))) {
    check_barrier(b, t, site);
  }
  b->barrier = t->site = site;
  t->state = kBlockWait;
  b->votes += predicate;
  if (++b->waiting == b->alive) release_block(b);
  wait(b, t);
#ifdef EMU_TSAN
  __tsan_acquire(sync);
#endif
  return b->verdict;
}

EMU_NOTSAN inline void finish(Block* b, Thread* t) {
  t->state = kDone;
  b->warps[t->index / kLanes].returned |= 1u << t->index % kLanes;
  b->alive--;
  if (!b->waiting) return;
  if (b->strict) {
    fail("thread %d returned while %d threads wait in __syncthreads at %s:%d", t->index,
         b->waiting, b->barrier->file, b->barrier->line);
  }
  if (b->waiting == b->alive) release_block(b);
}

EMU_NOTSAN inline void run_thread(Block* b) {
#ifdef EMU_TSAN
  __tsan_acquire(&b->sync_start);
#endif
  b->call(b->args);
#ifdef EMU_TSAN
  __tsan_release(&b->syncs->barrier[b->round & 1]);
  __tsan_release(&b->sync_end);
#endif
}

// What every fiber runs: threads one after another, so that one that never waits costs no switch.
EMU_OUTLINE void run_threads() {
  Block* b = B;
  Fiber* mine = T->fiber;
#ifdef EMU_ASAN
  const void* bottom;
  size_t bytes;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  if (!b->main.bottom) {  // the first fiber of a block comes from the main stack
    b->main.bottom = bottom;
    b->main.bytes = bytes;
  }
#endif
  for (;;) {
    run_thread(b);
    finish(b, T);
    Thread* next = next_thread(b);
    if (!next && b->alive) fail_deadlock(b);
#ifndef EMU_TSAN
    if (next && next->state == kNew) {
      next->fiber = mine;
      T = next;
      continue;
    }
    b->free_fibers[b->free_count++] = mine;
#endif
    if (!next) leave(b, mine);
    resume(b, next, mine, true);
  }
}

EMU_NOTSAN inline void reset_block(Block* b, uint64_t random) {
  b->epoch++;
  b->random = random;
  b->alive = b->count;
  b->waiting = b->votes = b->cursor = 0;
  b->head = b->tail = 0;
  for (int i = 0; i < b->count; i++) b->threads[i].state = kNew;
  for (int i = 0; i * kLanes < b->count; i++) b->warps[i].returned = 0;
  memset(b->named, 0, sizeof b->named);
  set_turn(b);
  // Two ways to mix warps: one far ahead of the others, or all side by side.
  b->run_ahead = b->order == kShuffled ? next_random(b) & 1 : b->order == kAscending;
  if (b->dynamic_bytes) memset(b->dynamic, b->poison, b->dynamic_bytes);
#ifdef EMU_ASAN
  b->main.bottom = nullptr;
#endif
}

EMU_OUTLINE void clear_failed_block(Block* b) {
#ifdef EMU_TSAN
  // Its threads never end: what they have used must not look like a race with who frees it.
  for (int i = 0; i < kContexts && b->contexts[i]; i++) {
    __tsan_switch_to_fiber(b->contexts[i], 1);
    __tsan_release(&b->sync_end);
  }
  __tsan_switch_to_fiber(b->main_context, 1);
#endif
  memset(b->warps, 0, sizeof b->warps);
  b->free_count = 0;
  for (int i = b->fiber_count - 1; i >= 0; i--) b->free_fibers[b->free_count++] = &b->fibers[i];
}

// Runs all threads of the block. False: b->failure says why it stopped.
EMU_OUTLINE bool run_block(Block* b, uint3 index, uint64_t random) {
  B = b;
  b->block_index = index;
  reset_block(b, random);
#ifdef EMU_TSAN
  b->main_context = __tsan_get_current_fiber();
  __tsan_release(&b->sync_start);
#endif
  resume(b, next_thread(b), &b->main, false);
  if (!b->failure[0]) return true;
  clear_failed_block(b);
  return false;
}

// ---- shared memory: poisoned (0xff, a NaN as float) before the block's first look at it

struct SharedSize {
  size_t bytes;
  SharedSize* next;
};
inline SharedSize* shared_sizes;
inline int shared_count;

// One for each __shared__ declaration and instantiation: `Tag` is a type local to the function.
template <class Tag, class Array>
struct SharedSlot {
  SharedSize size;
  int index;
  SharedSlot() : size{sizeof(Array), shared_sizes}, index(shared_count++) { shared_sizes = &size; }
  static SharedSlot slot;  // constructed when the module is loaded
};
template <class Tag, class Array>
SharedSlot<Tag, Array> SharedSlot<Tag, Array>::slot;

EMU_OUTLINE void poison_shared(SharedArray* array, Block* b) {
  array->epoch = b->epoch;
#ifdef EMU_TSAN
  // memset is intercepted and would count as a write by the thread that happens to come first.
  for (size_t i = 0; i < array->bytes; i++) ((volatile unsigned char*)array->memory)[i] = b->poison;
#else
  memset(array->memory, b->poison, array->bytes);
#endif
}

template <class Tag, class Array>
EMU_INLINE Array& shared_static() {
  Block* b = B;
  SharedArray* array = &b->shared[SharedSlot<Tag, Array>::slot.index];
  if (array->epoch != b->epoch) poison_shared(array, b);
  return *(Array*)array->memory;
}

template <class V>
EMU_INLINE V* shared_dynamic(Site site) {
  Block* b = B;
  if (!b->dynamic_bytes) {
    fail("%s:%d uses extern __shared__, but the launch gives 0 bytes", site->file, site->line);
  }
  return (V*)b->dynamic;
}

}  // namespace emu
