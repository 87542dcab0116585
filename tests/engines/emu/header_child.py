"""Run parity_dump.cuh under a sanitizer in a fork: MODE FAULT -> JSON (status, what was said)."""

import ctypes
import json
import os
import sys
import tempfile

import numpy as np

from parity_cuda.emu import EmuModule, Schedule, build_module
from tests.engines.header_digest import JOB, RESULT, THREADS, sources

C = ctypes.CDLL(None)
C.malloc.restype, C.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
SIZES = (0, 1, 3, 255, 256, 257, 300, 1000, 5003)
# The block reads its own bytes only; a barrier stands before the trees of other warps are read.
FAULTS = {
    "": ("", ""),
    "past the end": ("at + i < end) word", "at + i <= end) word"),
    "no barrier": (
        "shared->trees[round][warp] = tree;\n  __syncthreads();",
        "shared->trees[round][warp] = tree;",
    ),
}


def launch(module: EmuModule) -> None:
    """One launch for each size: a buffer of its own, that ends where its memory ends."""
    for size in SIZES:
        data = ctypes.c_void_p(C.malloc(size))  # Python's own buffers have room at their end
        ctypes.memmove(data, np.random.default_rng(size).bytes(size), size)
        job = np.array([(data.value or 0, size, 1, 0)], JOB)
        results = np.zeros(1, RESULT)
        args = (results.view(np.uint8), job.view(np.uint8), np.uint64(1))
        module.launch("digests", (1,), (THREADS,), args, schedule=Schedule("ascending"))


def main() -> None:
    mode, fault = sys.argv[1:]
    texts = sources(*FAULTS[fault])
    module = EmuModule(build_module(texts, mode=mode))  # type: ignore[arg-type]
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if not child:
            os.dup2(said.fileno(), 2)
            launch(module)
            C.exit(0)  # C's exit: a sanitizer has its last word there
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        print(json.dumps({"status": status, "said": said.read()}))


if __name__ == "__main__":
    main()
