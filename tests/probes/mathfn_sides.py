"""Implementations for tests of mathfn: cheap ones, and one planted fault each."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bits = npt.NDArray[np.uint32]

# The first, the middle and the last bit pattern (B28).
PLANTED = (0x00000000, 0x7FFFFFFF, 0xFFFFFFFF)


class Side:
    """A function over bit patterns. ``calls``: how often it was evaluated."""

    functions: tuple[str, ...] = ("expf", "cosf")

    def __init__(self, name: str, over_bits: Callable[[Bits], Bits], version: str = "1") -> None:
        self.name, self._over_bits, self._version = name, over_bits, version
        self.calls = 0

    def describe(self) -> Mapping[str, str]:
        """A version."""
        return {"library": f"test {self._version}"}

    def evaluate(self, function: str, x: Floats) -> Floats:
        """The function's bits as floats."""
        self.calls += 1
        return self._over_bits(x.view(np.uint32)).view(np.float32)


def identity(version: str = "1") -> Side:
    """The argument itself."""
    return Side("identity", lambda bits: bits, version)


def three_inputs() -> Side:
    """Another last bit at PLANTED."""

    def changed(bits: Bits) -> Bits:
        first, last = int(bits[0]), int(bits[-1])
        found = [word for word in PLANTED if first <= word <= last]
        if not found:
            return bits
        out = bits.copy()
        for word in found:
            out[word - first] ^= np.uint32(1)
        return out

    return Side("three", changed)


def changed(name: str, change: Callable[[Bits], Bits]) -> Side:
    """What ``change`` makes of a copy of the argument's bits."""
    return Side(name, lambda bits: change(bits.copy()))


def interrupting(at_call: int) -> Side:
    """The identity; Ctrl-C is pressed during one call."""
    made = identity()

    def pressed(bits: Bits) -> Bits:
        if made.calls == at_call:
            signal.raise_signal(signal.SIGINT)
        return bits

    made._over_bits = pressed
    return made
