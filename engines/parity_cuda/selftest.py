"""Start-up self-test: no verdict before the device is shown to keep subnormals and not to fuse."""

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


def check_arithmetic(backend: Backend, name: str) -> None:
    """Run the self-test kernel; NotRunError names what the build does wrong."""
    out = backend.empty((len(CHECKS),), np.uint32)
    backend.launch("selftest", (1,), 1, [out, backend.upload(INPUTS)])
    for got, (fault, wanted) in zip(backend.download(out), CHECKS, strict=True):
        if int(got) != wanted:
            raise NotRunError(
                f"{name}: start-up self-test: the build {fault} "
                f"(bits {int(got):08x}, needed {wanted:08x})",
                "check the compile options with parity doctor",
            )
