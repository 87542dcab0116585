// parity_dump.cuh: the digests of parity on the device, FNV-1a-64 and the count of values that are
// not finite (docs/dump-format.md). Explained in docs/header.md; include parity_dump.h before it.
// How a buffer is hashed in pieces is told in parity_slice.cuh, which stands beside it.
//
// Blocks that share a buffer take their places in it by ticket: a block waits only for blocks with
// lower tickets, which have started before it, so it may wait in any launch and in any order.
#pragma once
#include "parity_slice.cuh"

struct ParityJob {
  const unsigned char* data;
  unsigned long long bytes;
  int size;      // bytes of an element, 1 to 8
  int exponent;  // bits of the exponent in the upper two bytes of a float: f32 and bf16 0x7f80,
                 // f16 0x7c00, f64 0x7ff0; 0 for others, which are all finite
};

struct ParityResult {
  unsigned long long hash, nonfinite, first;  // first: flat index; of no meaning without nonfinite
};

// What a block does of a job that blocks share.
struct ParityPart {
  unsigned job, tile;
};

// Of a job that blocks share; all zero before and after a launch.
struct ParitySum {
  unsigned long long hash, nonfinite, last;  // last: ~ of the first index, so that 0 is "none"
  unsigned done, unused;
};

// --- one tile ------------------------------------------------------------------------------------

// Where a block stands among those that share its job. states: one word a ticket and group, groups
// `stride` words apart; null: the block has the job to itself.
struct ParityPlace {
  unsigned* states;
  unsigned stride;
  int ticket, tile;
  bool last;
};

struct ParityShared {
  unsigned trees[PARITY_ROUNDS][PARITY_WARPS], starts[PARITY_ROUNDS];
  unsigned long long sums[PARITY_WARPS], nonfinite[PARITY_WARPS], last[PARITY_WARPS];
  unsigned long long after, behind, hash;
  unsigned ticket;
};

// Fix bits K to END - 1, with those at the start of the slice in `bits`.
template <int K, int END>
struct ParitySettle {
  static __device__ __forceinline__ void all(ParitySlice& slice, ParityBelow& below,
                                             unsigned bits) {
    unsigned before[PARITY_STEPS], triple[PARITY_STEPS];
    const unsigned change = parity_change<K>(slice, below, before);
    const unsigned start = parity_runs_before(change) ^ (0u - (bits & 1));
    below = parity_up<K>(slice, below, before, start, triple);
#pragma unroll
    for (int t = 0; t < PARITY_STEPS; ++t) {
      if (K < 4) slice.triple[K & 3][t] = triple[t];
      if (K == 0) slice.mixed[t] = below.mixed[t];
    }
    ParitySettle<K + 1, END>::all(slice, below, bits >> 1);
  }
};
template <int END>
struct ParitySettle<END, END> {
  static __device__ __forceinline__ void all(ParitySlice&, ParityBelow&, unsigned) {}
};

// One warp: the group's bits at the start of this block, which posts its own state; warps: lane w
// has warp w's tree.
static __device__ __forceinline__ unsigned parity_block_start(const ParityPlace& place, int round,
                                                              unsigned warps, unsigned bits) {
  const bool posts = (threadIdx.x & 31) == 0 && !place.last;
  unsigned* states = place.states + (unsigned long long)round * place.stride;
  unsigned tree = 0;
  if (place.tile) {
    tree = ParityJoin<PARITY_GUESS, 1>::of(warps, 1);
    if (posts) parity_post(states + place.ticket, tree | PARITY_HAS_TREE);
    bits = parity_look_back(states, place.ticket - place.tile, place.ticket);
  }
  unsigned end = bits;
  parity_follow(warps, end);
  const unsigned state = tree | PARITY_HAS_TREE | PARITY_HAS_END | end << PARITY_END;
  if (posts) parity_post(states + place.ticket, state);
  return bits;
}

// All warps of a block, each with its tree: the group's bits at the start of each; bits: at the
// start of the block, where it has the job to itself, or of the job.
static __device__ __forceinline__ unsigned parity_warp_start(const ParityPlace& place, int round,
                                                             unsigned tree, unsigned bits,
                                                             ParityShared* shared) {
  const unsigned lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  if (lane == 0) shared->trees[round][warp] = tree;
  __syncthreads();
  const unsigned warps = lane < PARITY_WARPS ? shared->trees[round][lane] : 0;
  if (place.states) {
    if (warp == 0) {
      bits = parity_block_start(place, round, warps, bits);
      if (lane == 0) shared->starts[round] = bits;
    }
    __syncthreads();
    bits = shared->starts[round];
  }
  return __shfl_sync(0xffffffffu, parity_follow(warps, bits), warp);
}

// Bits K to 7 of the low byte at the start of the thread's slice. begin: the low byte at the start
// of the job, or of the tile where a block has the job to itself.
template <int K>
struct ParityRounds {
  static __device__ __forceinline__ unsigned low(ParitySlice& slice, ParityBelow& below,
                                                 unsigned begin, const ParityPlace& place,
                                                 ParityShared* shared) {
    enum { END = K + PARITY_GUESS < 8 ? K + PARITY_GUESS : 8 };
    const unsigned tree = ParityTree<K, END, 1>::of(slice, below);
    unsigned bits = begin >> K & ((1u << PARITY_GUESS) - 1);
    if (shared) {
      const unsigned joined = ParityJoin<END - K, 1>::of(tree, 1);
      bits = parity_warp_start(place, K / PARITY_GUESS, joined, bits, shared);
    }
    const unsigned own = parity_follow(tree, bits);
    ParitySettle<K, END>::all(slice, below, own);
    return own << K | ParityRounds<END>::low(slice, below, begin, place, shared);
  }
};
template <>
struct ParityRounds<8> {
  static __device__ __forceinline__ unsigned low(ParitySlice&, ParityBelow&, unsigned,
                                                 const ParityPlace&, ParityShared*) {
    return 0;
  }
};

// 16 bytes of which some are outside begin .. end - 1: those are zeros and are not read.
static __device__ __noinline__ uint4 parity_edge(const unsigned char* at,
                                                 const unsigned char* begin,
                                                 const unsigned char* end) {
  unsigned word[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (at + i >= begin && at + i < end) word[i / 4] |= (unsigned)at[i] << (i % 4 * 8);
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

static __device__ __forceinline__ void parity_read(unsigned* word, const unsigned char* at,
                                                   const unsigned char* begin,
                                                   const unsigned char* end) {
  const bool inside = at >= begin && at + PARITY_SLICE <= end;
#pragma unroll
  for (int i = 0; i < PARITY_WORDS; i += 4) {
    uint4 four = make_uint4(0, 0, 0, 0);
    const unsigned char* here = at + 4 * i;
    if (inside || (here >= begin && here + 16 <= end)) {
      four = *(const uint4*)here;
    } else if (here + 16 > begin && here < end) {
      four = parity_edge(here, begin, end);
    }
    word[i] = four.x, word[i + 1] = four.y, word[i + 2] = four.z, word[i + 3] = four.w;
  }
}

// The slice's own polynomial, from the low byte at its start.
static __device__ __forceinline__ unsigned long long parity_own(const unsigned* word,
                                                                unsigned low) {
  constexpr unsigned long long power = parity_constant(PARITY_SLICE);
  unsigned long long hash = low;
#pragma unroll
  for (int byte = 0; byte < PARITY_SLICE; ++byte)
    hash = (hash ^ (word[byte / 4] >> byte % 4 * 8 & 0xff)) * PARITY_PRIME;
  return hash - low * power;
}

// What is not finite: a count, and ~ of the smallest index or 0.
struct ParityOdd {
  unsigned long long count, last;
};

static __device__ __forceinline__ void parity_note(ParityOdd& odd, unsigned long long index) {
  odd.count += 1;
  if (odd.last < ~index) odd.last = ~index;
}

// Float32 values that are whole words: from the slice's own.
static __device__ __forceinline__ ParityOdd parity_odd_words(const unsigned* word,
                                                             long long first_index,
                                                             unsigned long long values) {
  ParityOdd odd = {0, 0};
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < PARITY_WORDS; ++i) largest = max(largest, word[i] & 0x7fffffffu);
  if (largest >= 0x7f800000u) {
#pragma unroll
    for (int i = 0; i < PARITY_WORDS; ++i) {
      const long long index = first_index + i;
      if ((word[i] & 0x7f800000u) == 0x7f800000u && index < (long long)values)
        parity_note(odd, index);
    }
  }
  return odd;
}

// Any float whose last byte is in this lane's slice.
static __device__ __forceinline__ ParityOdd parity_odd_bytes(const ParityJob& job, long long mine) {
  ParityOdd odd = {0, 0};
  const long long upto = mine + PARITY_SLICE, bytes = (long long)job.bytes;
  const long long end = (upto < bytes ? upto : bytes) / job.size;
  for (long long i = (mine > 0 ? mine : 0) / job.size; i < end; ++i) {
    const unsigned char* last = job.data + (i + 1) * job.size - 2;
    if (((last[0] | last[1] << 8) & job.exponent) == job.exponent) parity_note(odd, i);
  }
  return odd;
}

// What is not finite in the slices of a warp; in every lane. mine: the slice's place in the job.
static __device__ __forceinline__ ParityOdd parity_odd(const ParityJob& job, const unsigned* word,
                                                       long long mine) {
  const bool words = job.exponent == 0x7f80 && job.size == 4 && mine % 4 == 0;
  ParityOdd odd = words ? parity_odd_words(word, mine / 4, job.bytes / 4)
                        : parity_odd_bytes(job, mine);
  if (__any_sync(0xffffffffu, odd.count != 0)) {
#pragma unroll
    for (int by = 16; by; by /= 2) {
      odd.count += __shfl_xor_sync(0xffffffffu, odd.count, by);
      odd.last = max(odd.last, __shfl_xor_sync(0xffffffffu, odd.last, by));
    }
  }
  return odd;
}

struct ParityTileSum {
  unsigned long long hash;  // after the last of the warps that have bytes of the job
  ParityOdd odd;
};

// One tile of a job by a block, or all of it by a warp (no `shared`), after `hash`: valid in the
// first thread. begin: as in ParityRounds.
static __device__ __forceinline__ ParityTileSum parity_tile(const ParityJob& job,
                                                            unsigned long long hash,
                                                            unsigned begin,
                                                            const ParityPlace& place,
                                                            ParityShared* shared) {
  const unsigned lane = threadIdx.x & 31, warp = shared ? threadIdx.x / 32 : 0;
  const long long front = (unsigned long long)job.data & 15;
  const long long from = (long long)place.tile * PARITY_TILE - front;
  const long long mine = from + warp * PARITY_WARP_BYTES + lane * PARITY_SLICE;
  const bool idle = from + warp * PARITY_WARP_BYTES >= (long long)job.bytes;
  constexpr unsigned long long warp_power = parity_constant(PARITY_WARP_BYTES);
  ParityTileSum sum = {0, {0, 0}};
  if (idle && shared) {
    for (int round = 0; round < PARITY_ROUNDS; ++round) {
      const unsigned bits = begin >> (round * PARITY_GUESS) & ((1u << PARITY_GUESS) - 1);
      parity_warp_start(place, round, 0, bits, shared);
    }
  } else {
    unsigned word[PARITY_WORDS];
    parity_read(word, job.data + mine, job.data, job.data + job.bytes);
    ParitySlice slice;
    parity_planes(slice, word);
    ParityBelow below;
#pragma unroll
    for (int t = 0; t < PARITY_STEPS; ++t)
      below.mixed[t] = below.carry3[t] = below.carry17[t] = 0;
    const unsigned low = ParityRounds<0>::low(slice, below, begin, place, shared);
    sum.hash = parity_own(word, low);
    unsigned long long power = parity_constant(PARITY_SLICE);
#pragma unroll
    for (int by = 1; by < 32; by *= 2, power *= power)
      sum.hash = sum.hash * power + __shfl_down_sync(0xffffffffu, sum.hash, by);
    if (job.exponent) sum.odd = parity_odd(job, word, mine);
  }
  if (!shared) {
    sum.hash += hash * warp_power;
    return sum;
  }
  if (lane == 0) {
    shared->sums[warp] = sum.hash;
    shared->nonfinite[warp] = sum.odd.count;
    shared->last[warp] = sum.odd.last;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    sum.hash = hash, sum.odd.count = 0;
    for (int w = 0; w < PARITY_WARPS && from + w * PARITY_WARP_BYTES < (long long)job.bytes; ++w) {
      sum.hash = sum.hash * warp_power + shared->sums[w];
      sum.odd.count += shared->nonfinite[w];
      sum.odd.last = max(sum.odd.last, shared->last[w]);
    }
  }
  return sum;
}

// --- jobs ----------------------------------------------------------------------------------------

// The hash before the zeros in front of the job.
static __device__ __forceinline__ unsigned long long parity_begin(const ParityJob& job,
                                                                  unsigned long long basis) {
  return basis * parity_power(PARITY_INVERSE, (unsigned long long)job.data & 15);
}

// Bytes from the border before the job to its end.
static __device__ __forceinline__ unsigned long long parity_span(const ParityJob& job) {
  return ((unsigned long long)job.data & 15) + job.bytes;
}

// Of the job, in slices of a warp.
static __device__ __forceinline__ unsigned long long parity_warps(unsigned long long span) {
  return (span + PARITY_WARP_BYTES - 1) / PARITY_WARP_BYTES;
}

// What takes back the zeros behind the job.
static __device__ __forceinline__ unsigned long long parity_behind(unsigned long long span) {
  return parity_power(PARITY_INVERSE, parity_warps(span) * PARITY_WARP_BYTES - span);
}

// All threads of a block of PARITY_THREADS; thread 0 writes the result.
static __device__ void parity_digest_block(ParityResult* result, const ParityJob* given,
                                           unsigned long long basis) {
  __shared__ ParityShared shared[1];
  const ParityJob job = *given;
  const unsigned long long span = parity_span(job);
  unsigned long long hash = parity_begin(job, basis);
  if (threadIdx.x == PARITY_THREADS - 1) shared->behind = parity_behind(span);
  ParityOdd odd = {0, 0};
  ParityPlace place = {nullptr, 0, 0, 0, true};
  while ((unsigned long long)place.tile * PARITY_TILE < span) {
    const ParityTileSum sum = parity_tile(job, hash, (unsigned)hash & 0xff, place, shared);
    odd.count += sum.odd.count;
    odd.last = max(odd.last, sum.odd.last);
    if (threadIdx.x == 0) shared->hash = sum.hash;
    __syncthreads();
    hash = shared->hash;
    ++place.tile;
  }
  if (threadIdx.x == 0) *result = {span ? hash * shared->behind : hash, odd.count, ~odd.last};
}

// Launch with a block of PARITY_THREADS for each job.
static __global__ void parity_digest_jobs(ParityResult* results, const ParityJob* jobs,
                                          unsigned long long basis) {
  parity_digest_block(results + blockIdx.x, jobs + blockIdx.x, basis);
}

// A warp to itself for a job of no more than PARITY_WARP_BYTES, from the border before it on.
static __device__ __forceinline__ void parity_digest_warp(ParityResult* result,
                                                          const ParityJob* given,
                                                          unsigned long long basis) {
  const ParityJob job = *given;
  const unsigned long long begin = parity_begin(job, basis), span = parity_span(job);
  const ParityPlace place = {nullptr, 0, 0, 0, true};
  const ParityTileSum sum = parity_tile(job, begin, (unsigned)begin & 0xff, place, nullptr);
  if ((threadIdx.x & 31) == 0) {
    // One slice of a warp, also where the job is empty.
    const unsigned long long behind = parity_power(PARITY_INVERSE, PARITY_WARP_BYTES - span);
    *result = {sum.hash * behind, sum.odd.count, ~sum.odd.last};
  }
}

// One of the blocks that share a job; the last of them to end writes its result.
static __device__ __forceinline__ void parity_digest_part(ParityResult* results,
                                                          const ParityJob* jobs, ParitySum* sums,
                                                          unsigned* states, unsigned stride,
                                                          const ParityPart* parts, unsigned ticket,
                                                          unsigned long long basis) {
  __shared__ ParityShared shared[1];
  __shared__ unsigned ends;
  constexpr unsigned long long warp_power = parity_constant(PARITY_WARP_BYTES);
  const ParityPart part = parts[ticket];
  const ParityJob job = jobs[part.job];
  const unsigned long long span = parity_span(job), begin = parity_begin(job, basis);
  const unsigned tiles = (unsigned)((span + PARITY_TILE - 1) / PARITY_TILE);
  if (threadIdx.x == PARITY_THREADS - 1) {
    const unsigned long long warps = parity_warps(span), upto = (part.tile + 1) * PARITY_WARPS;
    shared->after = parity_power(warp_power, warps > upto ? warps - upto : 0);
    shared->behind = parity_behind(span);
  }
  const ParityPlace place = {states, stride, (int)ticket, (int)part.tile, part.tile + 1 == tiles};
  const ParityTileSum sum =
      parity_tile(job, part.tile ? 0 : begin, (unsigned)begin & 0xff, place, shared);
  ParitySum* total = sums + part.job;
  if (threadIdx.x == 0) {
    atomicAdd(&total->hash, sum.hash * shared->after);
    if (sum.odd.count) {
      atomicAdd(&total->nonfinite, sum.odd.count);
      atomicMax(&total->last, sum.odd.last);
    }
    __threadfence();
    ends = atomicInc(&total->done, tiles - 1) == tiles - 1;
    if (ends) {
      __threadfence();
      const unsigned long long all = atomicExch(&total->hash, 0ull);
      const unsigned long long count = atomicExch(&total->nonfinite, 0ull);
      results[part.job] = {all * shared->behind, count, ~atomicExch(&total->last, 0ull)};
    }
  }
  __syncthreads();
  // Every block has looked back by now: leave zeros for the next launch.
  if (!ends) return;
  for (unsigned at = threadIdx.x; at < tiles; at += PARITY_THREADS) {
    for (int round = 0; round < PARITY_ROUNDS; ++round)
      parity_post(states + (unsigned long long)round * stride + ticket - part.tile + at, 0);
  }
}

// n jobs in this order: those that blocks share, of `parts` tiles in all, then `single` ones of a
// block each, then `small` ones of a warp each. work: four words, the first for the ticket, a
// ParitySum for each job, and PARITY_ROUNDS words for each part; all zero before and after. Launch:
// parts + single + small / PARITY_WARPS, rounded up, blocks of PARITY_THREADS.
static __device__ void parity_digest_share(ParityResult* results, const ParityJob* jobs,
                                           const ParityPart* part, unsigned* work,
                                           unsigned long long basis, unsigned n, unsigned parts,
                                           unsigned single, unsigned small) {
  __shared__ unsigned ticket;
  if (blockIdx.x < parts) {
    if (threadIdx.x == 0) ticket = atomicInc(work, parts - 1);
    __syncthreads();
    ParitySum* sums = (ParitySum*)(work + 4);
    parity_digest_part(results, jobs, sums, (unsigned*)(sums + n), parts, part, ticket, basis);
  } else if (blockIdx.x < parts + single) {
    const unsigned job = n - small - single + blockIdx.x - parts;
    parity_digest_block(results + job, jobs + job, basis);
  } else {
    const unsigned at = (blockIdx.x - parts - single) * PARITY_WARPS + threadIdx.x / 32;
    if (at >= small) return;
    parity_digest_warp(results + n - small + at, jobs + n - small + at, basis);
  }
}

#ifdef PARITY_DUMP_H  // host code beside parity_dump.h

// The job of `count` elements at `data` on the device.
static inline ParityJob parity_job(const char* dtype, const void* data, size_t count) {
  const parity_dtype* type = parity_find(dtype);
  return {(const unsigned char*)data, count * type->size, (int)type->size, (int)type->exponent};
}

// For parity_tap_digest.
static inline parity_digest parity_device_digest(const ParityResult& result) {
  return {result.hash, (size_t)result.nonfinite, (size_t)result.first};
}

#endif
