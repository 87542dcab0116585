// digest: FNV-1a-64 and the count of non-finite values. docs/dump-format.md, contract 1.10.
// Launch: grid over n jobs, one thread a buffer. Plain on purpose: one serial chain a key.

struct Job {
  const unsigned char* data;
  long long bytes;
  int is_float;  // 1: float32, count NaN and infinities
  int unused;
};

struct Result {
  unsigned long long hash;
  int nonfinite;
  int first;  // flat index of the first non-finite value, -1 for none
};

extern "C" __global__ void digest(Result* results, const Job* jobs, unsigned long long basis,
                                  int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n) return;
  const Job job = jobs[at];
  unsigned long long h = basis;
  for (long long i = 0; i < job.bytes; ++i) h = (h ^ job.data[i]) * 0x100000001b3ull;
  int count = 0, first = -1;
  if (job.is_float) {
    const unsigned* bits = (const unsigned*)job.data;
    for (long long i = 0; i < job.bytes / 4; ++i) {
      if ((bits[i] & 0x7f800000u) != 0x7f800000u) continue;
      if (count == 0) first = (int)i;
      ++count;
    }
  }
  results[at].hash = h;
  results[at].nonfinite = count;
  results[at].first = first;
}
