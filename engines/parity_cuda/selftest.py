"""Start-up self-test: no verdict before the device is shown to keep subnormals and not to fuse, and
every launch to run the code of its own mask."""

from __future__ import annotations

import numpy as np

from parity.errors import NotRunError
from parity_cuda.backend import Backend

# Inputs of kernels/selftest.cu and the bits they must give; B12 (a) of fused multiply-add.
_TINY = np.float32(2.0**-130)
_A = np.float32(1 + 2.0**-12)
_C = np.float32(-(1 + 2.0**-11))
INPUTS = np.array([_TINY, _TINY, _A, _A, _C, 1.0, 3.0, 2.0], np.float32)
CHECKS = (
    ("flushes subnormals to zero", 0x00100000),
    ("contracts a*b+c into one rounding", 0x00000000),
    ("division is not correctly rounded", 0x3EAAAAAB),
    ("square root is not correctly rounded", 0x3FB504F3),
)
OTHER_MASK = 0x7FFFFFFF  # no set of variants: code for any mask takes it


def check_arithmetic(backend: Backend, name: str, mask: int) -> None:
    """Run the self-test kernel of each build that launches under ``mask`` may run; NotRunError
    names what it does wrong."""
    for asked in (mask, OTHER_MASK):
        bits = run_selftest(backend, asked)
        wanted = (*CHECKS, (f"runs the code of another mask than {asked:04x}", asked))
        for got, (fault, needed) in zip(bits, wanted, strict=True):
            if got != needed:
                raise NotRunError(
                    f"{name}: start-up self-test: the build {fault} "
                    f"(bits {got:08x}, needed {needed:08x})",
                    "check the compile options with parity doctor",
                )


def run_selftest(backend: Backend, mask: int) -> list[int]:
    """What one launch under ``mask`` gives: the bits of ``CHECKS``, then the mask it ran."""
    out = backend.empty((len(CHECKS) + 1,), np.uint32)
    backend.launch("selftest", (1,), 1, [out, backend.upload(INPUTS), np.int32(mask)])
    return [int(bits) for bits in backend.download(out)]
