// A launch: the blocks of a grid over OS threads, and the table of kernels that launch.py reads.
#pragma once
#include "emu_block.h"

namespace emu {

// ---- the table of kernels

struct Parameter {
  uint32_t bytes;    // 1 to 8
  uint32_t kind;     // 'p' pointer, 'c' pointer to const, 'f' floating, 'i' integer
  uint32_t pointee;  // bytes of what a pointer points to; 0 for void and for structs
};
struct Kernel {  // layout known to launch.py
  const char* name;
  void (*call)(const char* args);
  const Parameter* parameters;
  uint64_t count;
};
constexpr size_t kSlot = 8;  // bytes of every packed argument

template <class V>
constexpr uint32_t pointee_bytes(const V*) {
  return __is_class(V) || __is_union(V) ? 0 : (uint32_t)sizeof(V);
}
constexpr uint32_t pointee_bytes(const void*) { return 0; }
template <class V>
struct Describe {
  static_assert(!__is_class(V) && !__is_union(V), "emu: a kernel takes numbers and pointers only");
  static_assert(sizeof(V) <= kSlot, "emu: a kernel argument has at most 8 bytes");
  static constexpr bool floating = (V)0.5 != (V)0;
  static constexpr Parameter value = {sizeof(V), floating ? 'f' : 'i', 0};
};
template <>
struct Describe<bool> {
  static constexpr Parameter value = {1, 'i', 0};
};
template <class V>
struct Describe<V*> {
  static constexpr Parameter value = {sizeof(V*), 'p', pointee_bytes((V*)nullptr)};
};
template <class V>
struct Describe<const V*> {
  static constexpr Parameter value = {sizeof(V*), 'c', pointee_bytes((V*)nullptr)};
};

template <int... I>
struct Indices {};
template <int N, int... I>
struct Count : Count<N - 1, N - 1, I...> {};
template <int... I>
struct Count<0, I...> {
  typedef Indices<I...> type;
};

template <auto Function>
struct Thunk;
template <class... A, void (*Function)(A...)>
struct Thunk<Function> {
  // One more than needed: a kernel may take nothing.
  static constexpr Parameter parameters[sizeof...(A) + 1] = {Describe<A>::value..., {0, 0, 0}};
  template <int... I>
  EMU_INLINE void apply(const char* args, Indices<I...>) {
    Function(*(const A*)(args + kSlot * I)...);
  }
  static void call(const char* args) { apply(args, typename Count<sizeof...(A)>::type{}); }
  static constexpr Kernel kernel(const char* name) {
    return {name, call, parameters, sizeof...(A)};
  }
};
#define EMU_KERNEL(name) emu::Thunk<name>::kernel(#name)

// ---- running one launch

#ifdef EMU_TSAN
constexpr bool kMayHelp = false;  // contexts belong to the OS thread that made them
#else
constexpr bool kMayHelp = true;
#endif

struct Spec {  // packed by launch.py
  uint32_t grid[3], block[3];
  uint64_t shared_bytes;
  uint64_t seed;
  uint32_t order, threads, strict, poison;
};

struct Job {
  const Spec* spec;
  void (*call)(const char* args);
  const char* args;
  uint32_t blocks, next;
  uint32_t* turn;  // order of the blocks; null: by number, up or down
  int helpers, joined;
  char* failure;
};

inline void* take_memory(size_t bytes) {
  void* memory = nullptr;
  return posix_memalign(&memory, kSharedAlignment, bytes) ? nullptr : memory;
}

// Blocks that no launch uses. Stacks are mapped once, not for every launch.
constexpr int kParked = 128;
inline Block* parked[kParked];

EMU_OUTLINE Block* new_block() {
  Block* b = (Block*)__builtin_calloc(1, sizeof(Block));
  if (!b) return nullptr;
  for (int i = 0; i < (int)kMaxThreads; i++) b->threads[i].index = i;
  b->shared = (SharedArray*)__builtin_calloc((size_t)shared_count + 1, sizeof(SharedArray));
  bool ok = b->shared != nullptr;
  int i = shared_count;
  for (const SharedSize* s = shared_sizes; ok && s; s = s->next) {
    b->shared[--i] = {nullptr, s->bytes, 0};
#ifndef EMU_TSAN
    // One allocation an array: the address sanitizer finds an index past its end.
    b->shared[i].memory = (char*)take_memory(s->bytes);
    ok = b->shared[i].memory != nullptr;
#endif
  }
  return ok ? b : nullptr;
}
EMU_NOTSAN inline Block* take_block() {
  for (int i = 0; i < kParked; i++) {
    if (Block* b = __atomic_exchange_n(&parked[i], (Block*)nullptr, __ATOMIC_ACQ_REL)) return b;
  }
  return new_block();
}
// Parks the block; with more than kParked launches at once the rest of them stay allocated.
EMU_NOTSAN inline void park_block(Block* b) {
  for (int i = 0; i < kParked; i++) {
    Block* none = nullptr;
    if (__atomic_compare_exchange_n(&parked[i], &none, b, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
      return;
    }
  }
}

// The stacks of blocks that no launch uses are given back. The sanitizers keep theirs: they know them.
EMU_OUTLINE void rest() {
#if !defined(EMU_TSAN) && !defined(EMU_ASAN)
  for (int i = 0; i < kParked; i++) {
    Block* b = __atomic_exchange_n(&parked[i], (Block*)nullptr, __ATOMIC_ACQ_REL);
    if (!b) continue;
    no_fibers(b);
    park_block(b);
  }
#endif
}

EMU_OUTLINE void number_threads(Block* b, dim3 dim) {
  int i = 0;
  for (unsigned z = 0; z < dim.z; z++) {
    for (unsigned y = 0; y < dim.y; y++) {
      for (unsigned x = 0; x < dim.x; x++) b->threads[i++].tid = {x, y, z};
    }
  }
  b->count = i;
  b->block_dim = dim;
}

EMU_OUTLINE bool resize_dynamic(Block* b, size_t bytes) {
#ifdef EMU_ASAN
  const bool fits = bytes == b->dynamic_capacity;  // exact: the redzone starts where it ends
#else
  const bool fits = bytes <= b->dynamic_capacity;
#endif
  if (!fits) {
    __builtin_free(b->dynamic);
    b->dynamic = bytes ? (char*)take_memory(bytes) : nullptr;
    b->dynamic_capacity = b->dynamic ? bytes : 0;
  }
  b->dynamic_bytes = bytes;
  return !bytes || b->dynamic;
}

// Makes the block ready for a launch. False: no memory.
EMU_NOTSAN inline bool set_up(Block* b, const Job* j) {
  const uint32_t* d = j->spec->block;
  const uint32_t* g = j->spec->grid;
  if (d[0] != b->block_dim.x || d[1] != b->block_dim.y || d[2] != b->block_dim.z) {
    number_threads(b, dim3(d[0], d[1], d[2]));
  }
  b->grid_dim = dim3(g[0], g[1], g[2]);
  b->order = (Order)j->spec->order;
  b->strict = j->spec->strict;
  b->poison = (unsigned char)j->spec->poison;
  b->call = j->call;
  b->args = j->args;
  b->failure[0] = 0;
#ifdef EMU_TSAN
  const uint64_t threads = (uint64_t)j->blocks * (uint64_t)b->count;
  const int stacks = threads < (uint64_t)kStacks ? (int)threads : kStacks;
  for (int i = 0; i < stacks && i < kContexts; i++) {
    if (!b->contexts[i]) b->contexts[i] = __tsan_create_fiber(0);
  }
  b->dynamic_bytes = j->spec->shared_bytes;
  return more_fibers(b, stacks);
#else
  return more_fibers(b, 1) && resize_dynamic(b, j->spec->shared_bytes);
#endif
}

#ifdef EMU_TSAN
// Races between blocks are seen only while nothing orders one block after another: each has its
// own shared memory and its own objects to synchronise by, and the launch alone waits for all.
EMU_OUTLINE void* keep(Block* b, size_t bytes) {
  void* memory = take_memory(kSharedAlignment + bytes);
  if (!memory) return nullptr;
  Kept* head = (Kept*)memory;
  head->next = b->kept;
  b->kept = head;
  return (char*)memory + kSharedAlignment;
}
EMU_OUTLINE bool own_memory(Block* b, uint32_t ordinal) {
  b->first_stack = (int)((uint64_t)ordinal * (uint64_t)b->count % kStacks);
  b->syncs = (Syncs*)keep(b, sizeof(Syncs));
  b->dynamic = (char*)keep(b, b->dynamic_bytes);
  bool ok = b->syncs && b->dynamic;
  for (int i = 0; i < shared_count; i++) {
    b->shared[i].memory = (char*)keep(b, b->shared[i].bytes);
    ok = ok && b->shared[i].memory;
  }
  return ok;
}
EMU_OUTLINE void end_launch(Block* b) {
  __tsan_acquire(&b->sync_end);
  while (Kept* kept = b->kept) {
    b->kept = kept->next;
    __builtin_free(kept);
  }
}
#endif

EMU_NOTSAN inline uint3 index_of(uint32_t i, const uint32_t* grid) {
  return {i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]};
}

EMU_OUTLINE char* copy_text(const char* text) {
  char* copy = (char*)__builtin_malloc(strlen(text) + 1);
  if (!copy) __builtin_trap();
  return strcpy(copy, text);
}

EMU_OUTLINE void keep_failure(Job* j, const char* text) {
  char* copy = copy_text(text);
  char* none = nullptr;
  if (!__atomic_compare_exchange_n(&j->failure, &none, copy, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE)) {
    __builtin_free(copy);
  }
  __atomic_store_n(&j->next, j->blocks, __ATOMIC_RELAXED);
}

EMU_OUTLINE void run_blocks(Job* j, Block* b) {
  const Spec* spec = j->spec;
  for (;;) {
    const uint32_t k = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED);
    if (k >= j->blocks) return;
    const uint32_t i = j->turn ? j->turn[k] : spec->order == kDescending ? j->blocks - 1 - k : k;
    // The schedule of a block comes from its number, whichever OS thread runs it.
    const uint64_t random = spec->seed * 0x2545f4914f6cdd1dull + i;
#ifdef EMU_TSAN
    if (!own_memory(b, k)) return keep_failure(j, "no memory for the shared arrays of a block");
#endif
    if (!run_block(b, index_of(i, spec->grid), random)) return keep_failure(j, b->failure);
  }
}

// Round to nearest, no flush to zero, no traps: a library in this process may have set others.
EMU_NOTSAN inline uint64_t set_float_mode(uint64_t mode) {
  uint64_t before = 0;
#if defined(__x86_64__)
  before = __builtin_ia32_stmxcsr();
  if (before != mode) __builtin_ia32_ldmxcsr((unsigned)mode);
#elif defined(__aarch64__)
  asm volatile("mrs %0, fpcr" : "=r"(before));
  asm volatile("msr fpcr, %0" : : "r"(mode));
#endif
  return before;
}
#if defined(__x86_64__)
constexpr uint64_t kDefaultFloatMode = 0x1f80;
#else
constexpr uint64_t kDefaultFloatMode = 0;
#endif

EMU_OUTLINE void work(Job* j) {
  Block* b = take_block();
  if (!b || !set_up(b, j)) {
    keep_failure(j, "no memory for the threads of a block");
    if (b) park_block(b);
    return;
  }
  const uint64_t mode = set_float_mode(kDefaultFloatMode);
  run_blocks(j, b);
#ifdef EMU_TSAN
  end_launch(b);
#endif
  set_float_mode(mode);
  park_block(b);
}

// ---- OS threads that help with one launch at a time

struct Crew {
  pthread_mutex_t mutex;
  pthread_cond_t wake, idle;
  Job* job;
  int size, active;
};
constexpr Crew kNoCrew = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER,
                          PTHREAD_COND_INITIALIZER, nullptr, 0, 0};
inline Crew crew = kNoCrew;
#ifdef EMU_MAIN
__attribute__((constructor)) static void forget_crew_after_fork() {
  pthread_atfork(nullptr, nullptr, [] { crew = kNoCrew; });  // its threads stay in the parent
}
#endif

inline void* crew_member(void*) {
  pthread_mutex_lock(&crew.mutex);
  for (;;) {
    Job* j = crew.job;
    if (!j || j->joined == j->helpers) {
      pthread_cond_wait(&crew.wake, &crew.mutex);
      continue;
    }
    j->joined++;
    crew.active++;
    pthread_mutex_unlock(&crew.mutex);
    work(j);
    pthread_mutex_lock(&crew.mutex);
    if (--crew.active == 0) pthread_cond_signal(&crew.idle);
  }
}

// False: the crew helps with another launch, which then goes on alone.
inline bool call_crew(Job* j) {
  pthread_mutex_lock(&crew.mutex);
  const bool free = !crew.job;
  while (free && crew.size < j->helpers) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, crew_member, nullptr)) break;  // fewer helpers will do
    pthread_detach(thread);
    crew.size++;
  }
  if (free) crew.job = j;
  pthread_mutex_unlock(&crew.mutex);
  if (free) pthread_cond_broadcast(&crew.wake);
  return free;
}
// Waits for the members that took part, not for those that have not woken up yet.
inline void dismiss_crew() {
  pthread_mutex_lock(&crew.mutex);
  crew.job = nullptr;
  while (crew.active) pthread_cond_wait(&crew.idle, &crew.mutex);
  pthread_mutex_unlock(&crew.mutex);
}

inline const char* refuse_spec(const Spec* s) {
  const uint32_t* b = s->block;
  const uint32_t* g = s->grid;
  if (!b[0] || !b[1] || !b[2] || b[0] > kMaxThreads || b[1] > kMaxThreads || b[2] > kMaxBlockZ ||
      b[0] * b[1] * b[2] > kMaxThreads) {
    return "a block has 1 to 1024 threads, at most 64 of them along z";
  }
  if (!g[0] || !g[1] || !g[2] || g[0] > kMaxGridX || g[1] > kMaxGridYZ || g[2] > kMaxGridYZ) {
    return "a grid has 1 to 2147483647 blocks along x, 1 to 65535 along y and z";
  }
  if ((uint64_t)g[0] * g[1] * g[2] > kMaxGridX) return "this many blocks are not emulated";
  if (s->shared_bytes > kMaxShared) return "a block has at most 232448 bytes of shared memory";
  return nullptr;
}

// The order in which blocks start, for a shuffled schedule; null: no memory.
inline uint32_t* shuffle_blocks(const Spec* spec, uint32_t blocks) {
  uint32_t* turn = (uint32_t*)__builtin_malloc(sizeof(uint32_t) * blocks);
  uint64_t random = spec->seed ^ 0x1234567;
  for (uint32_t i = 0; turn && i < blocks; i++) {
    random = random * 0x5851f42d4c957f2dull + 0x14057b7ef767814full;
    const uint32_t j = below(i + 1, random >> 32);
    turn[i] = turn[j];
    turn[j] = i;
  }
  return turn;
}

// Returns null, or a message that the caller frees.
inline char* launch(const Kernel* kernel, const Spec* spec, const char* args) {
  if (const char* refused = refuse_spec(spec)) return copy_text(refused);
  const uint32_t blocks = spec->grid[0] * spec->grid[1] * spec->grid[2];
  Job job = {spec, kernel->call, args, blocks, 0, nullptr, (int)spec->threads - 1, 0, nullptr};
  if (spec->order == kShuffled && blocks > 1) {
    job.turn = shuffle_blocks(spec, blocks);
    if (!job.turn) return copy_text("no memory for the order of the blocks");
  }
  if ((uint32_t)job.helpers >= blocks) job.helpers = (int)blocks - 1;
  const bool helped = kMayHelp && job.helpers > 0 && call_crew(&job);
  work(&job);
  if (helped) dismiss_crew();
  __builtin_free(job.turn);
  return job.failure;
}

}  // namespace emu

// A unit of kernels ends with a table of them; one more unit, of no kernel, has what launch.py calls.
#define EMU_HIDDEN extern "C" __attribute__((visibility("hidden")))
#ifdef EMU_MAIN
#define EMU_EXPORT extern "C" __attribute__((visibility("default")))
EMU_EXPORT const emu::Kernel* const emu_kernels[];
EMU_EXPORT char* emu_launch(uint64_t kernel, const emu::Spec* spec, const char* args) {
  return emu::launch(emu_kernels[kernel], spec, args);
}
EMU_EXPORT void emu_free(char* message) { __builtin_free(message); }
EMU_EXPORT void emu_rest() { emu::rest(); }
#endif
