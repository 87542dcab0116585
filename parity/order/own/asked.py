"""The contract's sums as ops whose order can be revealed, whatever engine runs them: what is asked.

An engine gives a ``Launch``, which runs an op by its name; the modules beside this one say how the
op's arguments carry the probes, and how the sums are read back from what it computes. No reference
and no kernel is read: an op is only called, at its true shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from parity.errors import InputError, ParityBug
from parity.order.adapters.called import CalledOp, Floats
from parity.order.sums import Ask, refuse_unknown
from parity.order.tree import Terms
from parity.variants import VARIANTS, resolve, variant_mask

Array = npt.NDArray[Any]
# An op's name and its arguments by name, with room for its outputs among them: every array of them
# as it is after the call.
Launch = Callable[[str, dict[str, Any]], dict[str, Array]]
NEVER = np.float32(np.nan)  # what an op must write over


@dataclass(frozen=True)
class Asked:
    """One op at its true shape, see ``parity.order.sums.SumFamily.make``. ``key``: what else the
    order holds for, from the engine."""

    name: str
    K: int
    N: int
    M: int
    variants: frozenset[str]
    key: Mapping[str, str] = field(default_factory=dict)

    @property
    def mask(self) -> int:
        """The variants as ops take them."""
        return variant_mask(self.variants)

    def told(self, rows: str) -> dict[str, str]:
        """The key of the op; ``rows``: of the batch, which were looked at."""
        flags = "+".join(name for name in VARIANTS if name in self.variants) or "exact"
        return {**self.key, "shape": f"K={self.K} N={self.N}", "batch": rows, "flags": flags}

    def require(self, holds: bool, what: str) -> None:
        """InputError saying that the op needs ``what``, unless that holds."""
        if not holds:
            raise InputError(f"{self.name}: K = {self.K}, N = {self.N}, M = {self.M}", what)

    def called(
        self,
        terms: Terms,
        rows: int,
        call: Callable[[Floats | None, Floats], Array],
        batch: str,
        xs: int = 1,
    ) -> CalledOp:
        """The op as a function of arrays; ``rows``: sums of one call; ``xs``: different x of it."""
        key = self.told(batch)
        return CalledOp(self.name, self.K, rows, terms, "f32", "f32", call, key, xs)

    @property
    def all_rows(self) -> str:
        """What the key says of the batch where every row has probes of its own."""
        return "1" if self.M == 1 else f"{self.M}, all rows"


def asked_of(
    family: str,
    name: str,
    ask: Ask,
    M: int,
    key: Mapping[str, str],
) -> Asked:
    """What ``make`` was asked for, checked. The only option is ``variants``, names joined
    by ``+``. InputError for what no op of the contract offers."""
    op = f"{family}.{name}"
    refuse_unknown(op, ask.settings, ("variants",))
    if ask.dtype != "f32":
        raise InputError(f"{op}: --dtype {ask.dtype}", "the contract's sums are f32")
    plus = [one for one in ask.options.get("variants", "").split("+") if one]
    return Asked(op, ask.K, ask.N, M, resolve("exact", plus, (), op), key)


def unwritten(*shape: int) -> Floats:
    """Room for an output: NaN."""
    return np.full(shape, NEVER, np.float32)


def rows_of(x: Floats, count: int) -> Floats:
    """``count`` times the same row, or the rows of x, which are as many."""
    return np.ascontiguousarray(np.broadcast_to(x, (count, x.shape[-1])))


def needed(x: Floats | None) -> Floats:
    """x of an op of products, which is never None."""
    if x is None:
        raise ParityBug("an op of products was called without x")
    return x
