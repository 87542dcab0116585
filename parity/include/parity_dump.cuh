// parity_dump.cuh: the digests of parity on the device, FNV-1a-64 and the count of values that are
// not finite (docs/dump-format.md). Explained in docs/header.md; include parity_dump.h before it.
//
// One block a buffer, any length and alignment; blocks never wait for one another. The hash is a
// serial chain, h = (h ^ byte) * P, but the xor touches the low byte alone. So where the low byte
// at the start of a slice is known, the slice is a polynomial in P, and slices can be added up:
//   h after n bytes = P^n * h before + (the slice's own hash from its low byte - P^n * low byte)
// The low bytes come bit by bit, lowest first: bit k of (h ^ byte) * P is bit k of h, xor what the
// lower bits and the bytes give, so bit k at the start of a slice is the xor of that over all
// slices before it.
#pragma once

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

enum { PARITY_THREADS = 256 };  // of a block
#define PARITY_PRIME 0x100000001b3ull

static __device__ unsigned long long parity_slice(const unsigned char* data,
                                                  unsigned long long bytes,
                                                  unsigned long long hash) {
  for (unsigned long long i = 0; i < bytes; ++i) hash = (hash ^ data[i]) * PARITY_PRIME;
  return hash;
}

static __device__ unsigned long long parity_power(unsigned long long exponent) {
  unsigned long long power = 1, square = PARITY_PRIME;
  for (; exponent; exponent >>= 1, square *= square) {
    if (exponent & 1) power *= square;
  }
  return power;
}

// All threads of a block of PARITY_THREADS; thread 0 writes the result.
static __device__ void parity_digest_block(ParityResult* result, const ParityJob* job,
                                           unsigned long long basis) {
  __shared__ unsigned ends[PARITY_THREADS];  // of each slice: bit k of the low byte at its end
  __shared__ unsigned long long hash, nonfinite, first;
  const unsigned me = threadIdx.x;
  const unsigned long long width = (job->bytes + PARITY_THREADS - 1) / PARITY_THREADS;
  const unsigned long long begin = me * width < job->bytes ? me * width : job->bytes;
  const unsigned long long bytes = begin + width < job->bytes ? width : job->bytes - begin;
  const unsigned char* slice = job->data + begin;

  // step 1: the low byte before this slice, bit by bit
  unsigned low = 0;
  for (int bit = 0; bit < 8; ++bit) {
    unsigned end = low;
    for (unsigned long long i = 0; i < bytes; ++i) end = (end ^ slice[i]) * 0xb3u;
    ends[me] = end >> bit & 1;
    __syncthreads();
    unsigned before = (unsigned)(basis >> bit) & 1;
    for (unsigned other = 0; other < me; ++other) before ^= ends[other];
    low |= before << bit;
    __syncthreads();
  }

  // step 2: the slices' polynomials, added up
  if (me == 0) {
    hash = basis * parity_power(job->bytes);
    nonfinite = 0;
    first = ~0ull;
  }
  __syncthreads();
  const unsigned long long own = parity_slice(slice, bytes, low) - low * parity_power(bytes);
  atomicAdd(&hash, own * parity_power(job->bytes - begin - bytes));

  // step 3: the values that are not finite
  if (job->exponent) {
    const unsigned long long values = job->bytes / job->size;
    for (unsigned long long i = me; i < values; i += PARITY_THREADS) {
      const unsigned char* last = job->data + (i + 1) * job->size - 2;
      if (((last[0] | last[1] << 8) & job->exponent) != job->exponent) continue;
      atomicAdd(&nonfinite, 1ull);
      atomicMin(&first, i);
    }
  }
  __syncthreads();
  if (me == 0) *result = {hash, nonfinite, first};
}

// Launch with a block of PARITY_THREADS for each job.
static __global__ void parity_digest_jobs(ParityResult* results, const ParityJob* jobs,
                                          unsigned long long basis) {
  parity_digest_block(results + blockIdx.x, jobs + blockIdx.x, basis);
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
