"""Any op of parity_cuda.ops.Ops on one backend, run for the oracle's cases."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.variants import variant_mask
from parity_cuda.backend import Backend, Buffer
from parity_cuda.ops import Ops
from tests.engines.op_arguments import op_arguments, parameters
from tests.oracle import check

SENTINEL = 512  # bytes after each output that no kernel may touch: more than a block writes
GARBAGE = 0xFF  # NaN as float32, -1 as an integer


class WroteOutside(AssertionError):
    """A kernel wrote past the end of an output. Look at its bounds."""


class OpRunner:
    """Uploads, launches, downloads. Outputs start as garbage, with sentinel bytes behind them; so
    does scratch memory."""

    def __init__(self, backend: Backend, name: str, garbage: int = GARBAGE) -> None:
        self.backend, self.name, self.garbage = backend, name, garbage
        self.ops = Ops(backend)

    def run(self, op_name: str, args: check.Args) -> check.Outputs:
        """The outputs of an op that the oracle knows."""
        return self.run_for(op_name, args, check.output_specs(op_name, args))

    def run_variants(self, op_name: str, args: check.Args, names: frozenset[str]) -> check.Outputs:
        """The same with variants."""
        specs = check.output_specs(op_name, args)
        return self.run_for(op_name, args, specs, variant_mask(names))

    def run_for(
        self, op_name: str, args: check.Args, specs: tuple[check.Spec, ...], mask: int = 0
    ) -> check.Outputs:
        """The op's outputs; what a kernel did to its inputs is copied back into ``args``."""
        held = [self._output(spec) for spec in specs]
        method = getattr(self.ops, op_name)
        outputs = [buffer for _, buffer in held]
        names = parameters(method)
        given = op_arguments(op_name, names, outputs, args, mask)
        if "scratch" in names:
            given[names.index("scratch")].view(np.uint8)[...] = self.garbage
        if "pos" in names:  # kernels read it on the device
            given[names.index("pos")] = np.array([given[names.index("pos")]], np.int32)
        sent = [self._sent(value) if at >= len(held) else value for at, value in enumerate(given)]
        method(*sent)
        for value, buffer in zip(given[len(held) :], sent[len(held) :], strict=True):
            if isinstance(value, np.ndarray):
                value[...] = self.backend.download(buffer)
        return tuple(self._taken(op_name, *pair) for pair in held)

    def _output(self, spec: check.Spec) -> tuple[Buffer, Buffer]:
        """The whole memory, and the part of it that is the output."""
        shape, dtype = spec
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        whole = self.backend.upload(np.full(count + SENTINEL, self.garbage, np.uint8))
        return whole, whole[:count].view(dtype).reshape(shape)

    def _sent(self, value: Any) -> Any:
        return self.backend.upload(value) if isinstance(value, np.ndarray) else value

    def _taken(self, op_name: str, whole: Buffer, buffer: Buffer) -> np.ndarray[Any, np.dtype[Any]]:
        if (self.backend.download(whole[-SENTINEL:]) != self.garbage).any():
            raise WroteOutside(f"{op_name}: wrote past the end of its output")
        return self.backend.download(buffer)
