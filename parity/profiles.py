"""The profile of two sides as data: how far apart every field of every layer is.

Part of the divergence tree (``parity.tree``); ``parity.comparison.profile`` measures it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

UNEXPECTED = "bits not expected"  # of a pair of different arithmetic, and how its reason begins
BOUND, TIMES = "bound", 3  # unit and size of the fault that is planted in a pair judged so


@dataclass(frozen=True)
class ProfileRow:
    """One field of one layer over all positions at which both sides have it.

    ``layer``: None outside the layers. ``keys``: how many; ``equal``: those of one dtype, shape and
    bytes. ``elements``: values compared; ``differ``: those with other bits (with another dtype:
    with other bits once both are widened). ``unit``: what ``max_ulp`` counts in, the narrower
    format ("f32"), or "step" for integers; None where nothing finite differs. ``max_diff``: largest
    |dut - ref|, both widened to f64; ``rms``: root of the mean square of the ref's values;
    ``relative``: the first over the second, None where the ref is 0 throughout and the dut is not.
    ``key``, ``element``: where ``max_diff`` stands, "" where nothing differs. ``nonfinite``:
    differing elements that are not finite on a side; ``unmeasured``: keys whose dtypes or shapes
    have no common measure. ``bound``: what ``relative`` may be, None where nothing was judged;
    ``outside``: the first key beyond it, or "".
    """

    layer: int | None
    field: str
    ref_dtype: str
    dut_dtype: str
    keys: int
    equal: int
    elements: int
    differ: int
    unit: str
    max_ulp: int | None
    max_diff: float
    rms: float
    relative: float | None
    key: str
    element: tuple[int, ...]
    nonfinite: int = 0
    unmeasured: int = 0
    bound: float | None = None
    outside: str = ""

    @property
    def name(self) -> str:
        """As ``place_name``."""
        return place_name(self.layer, self.field)


def place_name(layer: int | None, field: str) -> str:
    """``l7_attn``, ``logits``: a key without its position."""
    return field if layer is None else f"l{layer}_{field}"


@dataclass(frozen=True)
class LoneField:
    """A field of a layer that one side alone has, at every position. ``side``: "ref" or "dut"."""

    side: str
    name: str
    keys: int


@dataclass(frozen=True)
class Profile:
    """All rows in dataflow order. ``positions``: how many were measured. ``judged``: whether the
    pair computes in different arithmetic and was held to the bound instead of to the bits;
    ``arithmetic``: the coarsest format that a side computes in, which the bound is for; ``worst``:
    name of the row nearest to its bound, or beyond it (without bounds: the largest ``relative``);
    ``outside``: the first key beyond its bound, or ""."""

    positions: int
    rows: list[ProfileRow] = field(default_factory=list)
    lone: list[LoneField] = field(default_factory=list)
    judged: bool = False
    arithmetic: str = ""
    worst: str = ""
    outside: str = ""

    def lone_keys(self, side: str) -> int:
        """Keys of the fields that ``side`` alone has."""
        return sum(one.keys for one in self.lone if one.side == side)

    def row(self, name: str) -> ProfileRow | None:
        """The row of a name, if there is one."""
        return next((row for row in self.rows if row.name == name), None)

    @classmethod
    def from_plain(cls, body: Mapping[str, Any] | None) -> Profile | None:
        """Read back from the object of its JSON text; None where there was none."""
        if body is None:
            return None
        rows: Sequence[Mapping[str, Any]] = body["rows"]
        made = [ProfileRow(**{**row, "element": tuple(row["element"])}) for row in rows]
        return cls(**{**body, "rows": made, "lone": [LoneField(**one) for one in body["lone"]]})
