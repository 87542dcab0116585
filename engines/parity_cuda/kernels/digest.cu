// digest: FNV-1a-64 and the count of non-finite values of many buffers in one launch, by the text
// that engines of other projects use. docs/dump-format.md, docs/header.md, contract 1.10.
// Launch: parts + single + small / 8, rounded up, blocks of 256 threads; see parity_digest_share.
// Bits are exact integers: neither the grid nor the order of blocks can change one.
#include "parity_dump.cuh"

extern "C" __global__ void __launch_bounds__(256, 4)
    digest(ParityResult* results, const ParityJob* jobs, const ParityPart* part, unsigned* work,
           unsigned long long basis, unsigned n, unsigned parts, unsigned single, unsigned small) {
  parity_digest_share(results, jobs, part, work, basis, n, parts, single, small);
}
