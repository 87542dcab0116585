// parity_slice.cuh: FNV-1a-64 in pieces, for parity_dump.cuh: what a slice of a
// buffer does to the hash, and how the slices of lanes, warps and blocks follow each other.
//
// The hash is a serial chain, h = (h ^ byte) * P, but the xor touches the low byte alone. So where
// the low byte at the start of a slice is known, the slice is a polynomial in P, and slices can be
// added up:
//   h after n bytes = P^n * h before + (the slice's own hash from its low byte - P^n * low byte)
// The low byte goes its own way: with u = low ^ byte, the next one is u * 0xb3 mod 256, and
//   0xb3 * u = 17 * (3 * u) + 128 * u, so bit k of it is u_k xor what lower bits of u give.
// Bit k at the start of a slice is then the xor of that over all slices before it. Bits are found
// PARITY_GUESS at a time, lowest first: what a slice does to them is worked out for every value
// they may have at its start, as a tree of single bits, and the trees of lanes, warps and blocks
// are followed from the start of the buffer. A zero byte does nothing but multiply by P, which has
// an inverse mod 2^64, so a buffer is read from the 16-byte border before it, with zeros outside.
#pragma once

enum {
  PARITY_THREADS = 256,  // of a block
  PARITY_WARPS = PARITY_THREADS / 32,
  PARITY_STEPS = 2,              // bytes of a run, of which a thread has 32
  PARITY_WORDS = 8 * PARITY_STEPS,  // of a thread's slice, 4 bytes each
  PARITY_SLICE = 4 * PARITY_WORDS,  // bytes of a thread
  PARITY_WARP_BYTES = 32 * PARITY_SLICE,
  PARITY_TILE = PARITY_THREADS * PARITY_SLICE,  // bytes of a block
  PARITY_GUESS = 2,                             // bits found at a time
  PARITY_ROUNDS = (8 + PARITY_GUESS - 1) / PARITY_GUESS
};
#define PARITY_PRIME 0x100000001b3ull
#define PARITY_INVERSE 0xce965057aff6957bull

static __host__ __device__ constexpr unsigned long long parity_constant(unsigned exponent) {
  return exponent == 0 ? 1
         : exponent % 2 ? PARITY_PRIME * parity_constant(exponent - 1)
                        : parity_constant(exponent / 2) * parity_constant(exponent / 2);
}

static __device__ unsigned long long parity_power(unsigned long long base,
                                                  unsigned long long exponent) {
  unsigned long long power = 1;
  for (; exponent; exponent >>= 1, base *= base) {
    if (exponent & 1) power *= base;
  }
  return power;
}

// --- a slice: its bits in planes, and what it does to the low byte -------------------------------

// Bit j of plane[k][t] is bit k of byte j * PARITY_STEPS + t: 32 runs of PARITY_STEPS bytes.
// triple: bits 0 to 3 of 3 * u; mixed: bit 0 of u.
struct ParitySlice {
  unsigned plane[8][PARITY_STEPS], triple[4][PARITY_STEPS], mixed[PARITY_STEPS];
};

// What the bits below leave for the next one: u's last bit, the carries of 3 * u and of 17 * (3 u).
struct ParityBelow {
  unsigned mixed[PARITY_STEPS], carry3[PARITY_STEPS], carry17[PARITY_STEPS];
};

// Exchange bits `shift` apart between two words.
static __device__ __forceinline__ void parity_swap(unsigned& a, unsigned& b, int shift,
                                                   unsigned mask) {
  const unsigned low = (a & mask) | ((b << shift) & ~mask);
  b = ((a >> shift) & mask) | (b & ~mask);
  a = low;
}

static __device__ __forceinline__ void parity_planes(ParitySlice& slice, const unsigned* word) {
  enum { GROUPS = 2 * PARITY_STEPS };
#pragma unroll
  for (int i = 0; i < GROUPS; ++i) {
    const unsigned a = word[i], b = word[GROUPS + i];
    const unsigned c = word[2 * GROUPS + i], d = word[3 * GROUPS + i];
    const unsigned ab0 = __byte_perm(a, b, 0x5140), ab1 = __byte_perm(a, b, 0x7362);
    const unsigned cd0 = __byte_perm(c, d, 0x5140), cd1 = __byte_perm(c, d, 0x7362);
    const unsigned column[4] = {
        __byte_perm(ab0, cd0, 0x5410), __byte_perm(ab0, cd0, 0x7632),
        __byte_perm(ab1, cd1, 0x5410), __byte_perm(ab1, cd1, 0x7632)};
#pragma unroll
    for (int byte = 0; byte < 4; ++byte) {
      const int at = 4 * i + byte;
      slice.plane[at / PARITY_STEPS][at % PARITY_STEPS] = column[byte];
    }
  }
#pragma unroll
  for (int t = 0; t < PARITY_STEPS; ++t) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      parity_swap(slice.plane[k][t], slice.plane[k + 4][t], 4, 0x0f0f0f0fu);
#pragma unroll
    for (int k = 0; k < 8; k += k % 4 == 1 ? 3 : 1)
      parity_swap(slice.plane[k][t], slice.plane[k + 2][t], 2, 0x33333333u);
#pragma unroll
    for (int k = 0; k < 8; k += 2)
      parity_swap(slice.plane[k][t], slice.plane[k + 1][t], 1, 0x55555555u);
  }
}

// Each run's change of bit K; before[t]: the change up to step t of it.
template <int K>
static __device__ __forceinline__ unsigned parity_change(const ParitySlice& slice,
                                                         const ParityBelow& below,
                                                         unsigned* before) {
  unsigned change = 0;
#pragma unroll
  for (int t = 0; t < PARITY_STEPS; ++t) {
    before[t] = change;
    unsigned own = slice.plane[K][t] ^ below.mixed[t] ^ below.carry3[t];
    if (K >= 4) own ^= slice.triple[K & 3][t] ^ below.carry17[t];
    if (K == 7) own ^= slice.mixed[t];
    change ^= own;
  }
  return change;
}

// Whether the runs before each run change it: the xor of all lower bits.
static __device__ __forceinline__ unsigned parity_runs_before(unsigned change) {
#pragma unroll
  for (int by = 1; by < 32; by *= 2) change ^= change << by;
  return change << 1;
}

static __device__ __forceinline__ unsigned parity_most(unsigned a, unsigned b, unsigned c) {
  return (a & b) | (a & c) | (b & c);
}

// Go up from bit K, with bit K of the low byte at the start of each run in `start`.
template <int K>
static __device__ __forceinline__ ParityBelow parity_up(const ParitySlice& slice,
                                                        const ParityBelow& below,
                                                        const unsigned* before, unsigned start,
                                                        unsigned* triple) {
  ParityBelow next;
#pragma unroll
  for (int t = 0; t < PARITY_STEPS; ++t) {
    const unsigned u = slice.plane[K][t] ^ before[t] ^ start;
    triple[t] = u ^ below.mixed[t] ^ below.carry3[t];
    next.carry3[t] = parity_most(u, below.mixed[t], below.carry3[t]);
    next.carry17[t] =
        K >= 4 ? parity_most(triple[t], slice.triple[K & 3][t], below.carry17[t]) : 0;
    next.mixed[t] = u;
  }
  return next;
}

// A tree of bits: bit NODE says whether the slice changes bit K of the low byte when the bits below
// it, from the first of the group on, are those of NODE's path; the root is 1, node n leads to
// 2n for a bit of 0 and to 2n + 1.
template <int K, int END, int NODE>
struct ParityTree {
  static __device__ __forceinline__ unsigned of(const ParitySlice& slice,
                                                const ParityBelow& below) {
    unsigned before[PARITY_STEPS], triple[PARITY_STEPS];
    const unsigned change = parity_change<K>(slice, below, before);
    const unsigned own = (__popc(change) & 1u) << NODE, start = parity_runs_before(change);
    return own |
           ParityTree<K + 1, END, 2 * NODE>::of(
               slice, parity_up<K>(slice, below, before, start, triple)) |
           ParityTree<K + 1, END, 2 * NODE + 1>::of(
               slice, parity_up<K>(slice, below, before, ~start, triple));
  }
};
template <int END, int NODE>
struct ParityTree<END, END, NODE> {
  static __device__ __forceinline__ unsigned of(const ParitySlice&, const ParityBelow&) {
    return 0;
  }
};

// --- trees of lanes one after the other ----------------------------------------------------------

static __device__ __forceinline__ unsigned parity_lanes_before() {
  return (1u << (threadIdx.x & 31)) - 1;
}

// The tree of all lanes together. LEFT: levels below; at: this lane's node.
template <int LEFT, int NODE>
struct ParityJoin {
  static __device__ __forceinline__ unsigned of(unsigned tree, unsigned at) {
    const unsigned votes = __ballot_sync(0xffffffffu, tree >> at & 1);
    const unsigned turned = __popc(votes & parity_lanes_before()) & 1;
    return (__popc(votes) & 1u) << NODE |
           ParityJoin<LEFT - 1, 2 * NODE>::of(tree, 2 * at + turned) |
           ParityJoin<LEFT - 1, 2 * NODE + 1>::of(tree, 2 * at + (turned ^ 1));
  }
};
template <int NODE>
struct ParityJoin<0, NODE> {
  static __device__ __forceinline__ unsigned of(unsigned, unsigned) { return 0; }
};

// A group's bits at the start of this lane; `bits`: those before lane 0, then those after lane 31.
static __device__ __forceinline__ unsigned parity_follow(unsigned tree, unsigned& bits) {
  unsigned at = 1, here = 0, after = 0;
#pragma unroll
  for (int k = 0; k < PARITY_GUESS; ++k) {
    const unsigned votes = __ballot_sync(0xffffffffu, tree >> at & 1);
    const unsigned start = bits >> k & 1;
    const unsigned own = (start ^ __popc(votes & parity_lanes_before())) & 1;
    here |= own << k;
    after |= ((start ^ __popc(votes)) & 1) << k;
    at = 2 * at + own;
  }
  bits = after;
  return here;
}

// --- blocks one after the other ------------------------------------------------------------------

// A tile's state of one group, one word for each ticket: bits 1 to 15 the tree, bit 0: it is there;
// from bit 20 on the group's bits after the tile, bit 16: they are there.
enum { PARITY_HAS_TREE = 1, PARITY_TREE = 0xfffe, PARITY_HAS_END = 1 << 16, PARITY_END = 20 };

static __device__ __forceinline__ void parity_post(unsigned* state, unsigned value) {
#ifdef __CUDA_EMU__
  atomicExch(state, value);
#else
  *(volatile unsigned*)state = value;
#endif
}

static __device__ __forceinline__ unsigned parity_peek(unsigned* state) {
#ifdef __CUDA_EMU__
  return atomicOr(state, 0u);
#else
  return *(volatile unsigned*)state;
#endif
}

// One warp: a group's bits at the start of `ticket`, from the states of tickets `first` on. Goes
// back by windows of 32, joining their trees, until one has an end; a lane keeps a window's tree.
static __device__ __forceinline__ unsigned parity_look_back(unsigned* states, int first,
                                                            int ticket) {
  const int lane = threadIdx.x & 31;
  for (;;) {
    unsigned mine = 0;
    for (int back = 0; back < 32; ++back) {
      const int at = ticket - 32 * (back + 1) + lane;
      unsigned state = PARITY_HAS_TREE;
      do {
        if (at >= first) state = parity_peek(states + at);
      } while (!__all_sync(0xffffffffu, (state & PARITY_HAS_TREE) != 0));
      const unsigned ends = __ballot_sync(0xffffffffu, (state & PARITY_HAS_END) != 0);
      const int nearest = 31 - __clz((int)ends);  // -1: none
      const unsigned tree = lane > nearest ? state & PARITY_TREE : 0;
      const unsigned joined = ParityJoin<PARITY_GUESS, 1>::of(tree, 1);
      if (lane == 31 - back) mine = joined;
      if (ends) {
        unsigned bits = __shfl_sync(0xffffffffu, state, nearest) >> PARITY_END;
        parity_follow(mine, bits);
        return bits;
      }
    }
  }
}
