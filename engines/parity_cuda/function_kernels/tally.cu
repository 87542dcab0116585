// tally: counts pairs of results where they lie; parity/elementary/tally.py says what each count is.
//
// Integers only. Any grid and block: sums and smallest keys are the same in whatever order threads
// come. One launch counts the pairs of bit patterns start to start + n - 1, at most 2^31 of them, so
// that the counts of one block fit 32 bits. counts: TALLY_ROWS words, keys: 9 lists of 8, all set
// before the launch, counts to 0 and keys to all ones.

// Places of parity/elementary/tally.py.
constexpr int TALLY_EQUAL = 0;
constexpr int TALLY_OUTSIDE = 1;
constexpr int TALLY_KIND = 3;
constexpr int TALLY_BELOW = 8;
constexpr int TALLY_ABOVE = 41;
constexpr int TALLY_RESULTS = 74;
constexpr int TALLY_DIFFER = 616;
constexpr int TALLY_LARGEST = 1128;
constexpr int TALLY_ROWS = 1640;
constexpr int TALLY_LISTS = 9;
constexpr int TALLY_KEEP = 8;
constexpr long long TALLY_EMPTY = 1ll << 40;

constexpr unsigned TALLY_ABS = 0x7fffffffu;
constexpr unsigned TALLY_INF = 0x7f800000u;
constexpr unsigned TALLY_MIN_NORMAL = 0x00800000u;
constexpr unsigned TALLY_ONE = 0x3f800000u;
constexpr unsigned long long TALLY_NO_KEY = ~0ull;

__device__ __forceinline__ int tally_class(unsigned size) {
  if (size >= TALLY_INF) return size == TALLY_INF ? 1 : 0;
  if (size == 0u) return 2;
  return size < TALLY_MIN_NORMAL ? 3 : 4;
}

// A load that other threads may write beside: volatile is relaxed on the device (PTX ISA, ld), not
// in C++.
__device__ __forceinline__ unsigned long long tally_seen(const unsigned long long* slot) {
#ifdef __CUDA_EMU__
  return __atomic_load_n(slot, __ATOMIC_RELAXED);
#else
  return *(const volatile unsigned long long*)slot;
#endif
}

// Keep the 8 smallest keys, ascending: each slot keeps the smaller key and hands the other on, so
// that slot s ends with the (s+1)-th smallest of all, whoever came first.
__device__ __forceinline__ void tally_insert(unsigned long long* slots, unsigned long long key) {
  if (key >= tally_seen(&slots[TALLY_KEEP - 1])) return;
  for (int slot = 0; slot < TALLY_KEEP && key != TALLY_NO_KEY; ++slot) {
    const unsigned long long before = atomicMin(&slots[slot], key);
    key = before > key ? before : key;
  }
}

// The pair at input x has different bits.
__device__ __forceinline__ void tally_difference(unsigned* part, unsigned long long* keys,
                                                 unsigned x, unsigned ref, unsigned dut) {
  const unsigned a = ref & TALLY_ABS, b = dut & TALLY_ABS;
  const int ref_class = tally_class(a), dut_class = tally_class(b);
  atomicAdd(&part[TALLY_DIFFER + (x >> 23)], 1u);
  tally_insert(keys, x);
  int kind = -1;
  if (ref_class == 0 || dut_class == 0)
    kind = ref_class == dut_class ? 1 : ref_class == 0 ? 2 : 3;
  else if ((a | b) == 0u)
    kind = 0;
  else if (ref_class == 1 || dut_class == 1)
    kind = 4;
  if (kind >= 0) {
    atomicAdd(&part[TALLY_KIND + kind], 1u);
    tally_insert(keys + (2 + kind) * TALLY_KEEP, x);
    if (kind != 4) return;
  }
  const bool minus = (ref >> 31) != 0u, together = ((ref ^ dut) >> 31) == 0u;
  const unsigned distance = together ? (a > b ? a - b : b - a) : a + b;
  atomicMax(&part[TALLY_LARGEST + (x >> 23)], distance);
  tally_insert(keys + TALLY_KEEP, (unsigned long long)(0xffffffffu - distance) << 32 | x);
  if (kind == 4) return;
  const int place = distance > 1u ? 32 - __clz((int)(distance - 1u)) : 0;
  const bool larger = together ? (b > a) != minus : minus;
  atomicAdd(&part[(larger ? TALLY_ABOVE : TALLY_BELOW) + place], 1u);
}

__device__ __forceinline__ void tally_outside(unsigned* part, unsigned long long* keys, int side,
                                              unsigned x, unsigned result) {
  const unsigned size = result & TALLY_ABS;
  if (size <= TALLY_ONE || size > TALLY_INF) return;
  atomicAdd(&part[TALLY_OUTSIDE + side], 1u);
  tally_insert(keys + (7 + side) * TALLY_KEEP, x);
}

extern "C" __global__ void tally_inputs(unsigned* bits, unsigned start, long long n) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
    bits[i] = start + (unsigned)i;
}

extern "C" __global__ void tally_pairs(unsigned long long* counts, unsigned long long* keys,
                                       const unsigned* ref, const unsigned* dut, unsigned start,
                                       int bounded, long long n) {
  __shared__ unsigned part[TALLY_ROWS];
  for (int at = threadIdx.x; at < TALLY_ROWS; at += blockDim.x) part[at] = 0u;
  __syncthreads();
  unsigned equal = 0u, nan = 0u, inf = 0u, zero = 0u, subnormal = 0u, normal = 0u;
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    const unsigned x = start + (unsigned)i, r = ref[i], d = dut[i];
    const int ref_class = tally_class(r & TALLY_ABS);
    if (bounded) {
      tally_outside(part, keys, 0, x, r);
      tally_outside(part, keys, 1, x, d);
    }
    if (r != d) {
      atomicAdd(&part[TALLY_RESULTS + 5 * ref_class + tally_class(d & TALLY_ABS)], 1u);
      tally_difference(part, keys, x, r, d);
      continue;
    }
    equal += 1u;
    nan += ref_class == 0;
    inf += ref_class == 1;
    zero += ref_class == 2;
    subnormal += ref_class == 3;
    normal += ref_class == 4;
  }
  atomicAdd(&part[TALLY_EQUAL], equal);
  atomicAdd(&part[TALLY_RESULTS], nan);
  atomicAdd(&part[TALLY_RESULTS + 6], inf);
  atomicAdd(&part[TALLY_RESULTS + 12], zero);
  atomicAdd(&part[TALLY_RESULTS + 18], subnormal);
  atomicAdd(&part[TALLY_RESULTS + 24], normal);
  __syncthreads();
  for (int at = threadIdx.x; at < TALLY_ROWS; at += blockDim.x) {
    if (part[at] == 0u) continue;
    if (at < TALLY_LARGEST)
      atomicAdd(&counts[at], (unsigned long long)part[at]);
    else
      atomicMax(&counts[at], (unsigned long long)part[at]);
  }
}

// From keys to rows (rank, input, ref, dut): one thread a row.
extern "C" __global__ void tally_rows(long long* rows, const unsigned long long* keys,
                                      const unsigned* ref, const unsigned* dut, unsigned start) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= TALLY_LISTS * TALLY_KEEP) return;
  const unsigned long long key = keys[at];
  long long* row = rows + 4 * at;
  row[0] = TALLY_EMPTY;
  row[1] = row[2] = row[3] = 0;
  if (key == TALLY_NO_KEY) return;
  const unsigned x = (unsigned)key, place = x - start;
  const bool ranked = at / TALLY_KEEP == 1;
  row[0] = ranked ? (long long)(key >> 32) - 0xffffffffll : 0;
  row[1] = x;
  row[2] = ref[place];
  row[3] = dut[place];
}
