"""Which elementary function makes a key differ: both sides' functions on the same arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from parity.comparison.elements import compare_tensors
from parity.keys import Key
from parity.protocol import Call, Elementary, ElementaryEngine, Engine
from parity.tree import FunctionDiff

if TYPE_CHECKING:
    from parity.tree import Elements


def attribute_birth(
    key: Key, calls: Sequence[Call], ref: Engine, dut: Engine
) -> list[FunctionDiff]:
    """The elementary functions that differ between the sides on the arguments ``key`` has.

    ``calls``: what ran for ``key`` on the ref's inputs, ``step.calls[key]`` of a step with
    ``Plan.trace``: of a step of the ref, its own run or a rerun; where the ref tells no arguments
    (see ``with_arguments``), of a step of the dut on the ref's inputs (``Plan.replace``).

    Only functions with a call that differs are listed, in the order the op calls them; calls are
    counted in the order of the engine that told them. None listed means that something else than
    an elementary function makes ``key`` differ, or that a side lacks the capability ``elementary``
    or nobody told arguments.
    """
    if not all("elementary" in engine.capabilities for engine in (ref, dut)):
        return []
    sides = cast(ElementaryEngine, ref), cast(ElementaryEngine, dut)
    found = [
        _difference(key, function, x, sides)
        for function, x in _by_function(calls).items()
        if x.size
    ]
    return [diff for diff in found if diff is not None]


def lent_functions(ref: Engine, dut: Engine) -> Elementary | None:
    """The dut's functions, for a step of the ref that computes with them (``Plan.borrow``); None
    where a side cannot. Where that step, on the ref's own inputs, gives the dut's bytes, the
    functions explain all of the difference."""
    if "borrow" not in ref.capabilities or "elementary" not in dut.capabilities:
        return None
    return cast(ElementaryEngine, dut).elementary


def with_arguments(ref: Sequence[Call], dut: Sequence[Call]) -> Sequence[Call]:
    """Of the calls both sides told for one key, those with arguments: the ref's, else the dut's."""
    return ref if any(call.elementary for call in ref) else dut


def _by_function(calls: Sequence[Call]) -> dict[str, np.ndarray]:
    """All arguments of each function, call after call."""
    told: dict[str, list[np.ndarray]] = {}
    for call in calls:
        for function, x in call.elementary:
            told.setdefault(function, []).append(x)
    return {function: np.concatenate(arrays) for function, arrays in told.items()}


def _difference(
    key: Key, function: str, x: np.ndarray, sides: tuple[ElementaryEngine, ElementaryEngine]
) -> FunctionDiff | None:
    ref, dut = (side.elementary(function, x) for side in sides)
    found: Elements = compare_tensors(key.tag, ref, dut)
    if not found.differ:
        return None
    first = found.rows[0]
    return FunctionDiff(
        function=function,
        calls=x.size,
        differ=found.differ,
        first_input=f"{int(x.view(np.uint32)[first.index[0]]):08x}",
        ref_hex=first.ref_hex,
        dut_hex=first.dut_hex,
        max_ulp=found.max_ulp,
    )
