"""From a tally to a result: bins, classes, exponents and examples, and what is remarked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from parity.comparison.elements import compare_tensors
from parity.dtypes import value_text
from parity.elementary.mathfn import BOUNDED, NAN_PAYLOAD, Bin, Example, Exponent, Special, Sweep
from parity.elementary.tally import EXPONENTS, KINDS, LISTS, Row, Tally, bin_names
from parity.tree import ElementRow

Bits = npt.NDArray[np.uint32]

DTYPE = "f32"
_HALF = EXPONENTS // 2  # exponents of one sign


def examples(rows: Sequence[Row]) -> list[Example]:
    """Rows with their distances and kinds, in their order."""
    both = np.array([(row.ref, row.dut) for row in rows], np.uint32).reshape(-1, 2)
    ref, dut = (np.ascontiguousarray(side).view(np.float32) for side in both.T)
    found = compare_tensors("", ref, dut, limit=max(1, len(rows))).rows
    differing = {row.index[0]: row for row in found}
    return [_example(row, differing.get(at)) for at, row in enumerate(rows)]


def _example(row: Row, element: ElementRow | None) -> Example:
    return Example(
        x_hex=f"{row.x:08x}",
        ref_hex=f"{row.ref:08x}",
        dut_hex=f"{row.dut:08x}",
        x=value_text(row.x, DTYPE),
        ref=value_text(row.ref, DTYPE),
        dut=value_text(row.dut, DTYPE),
        ulp=element.ulp if element else 0,
        kind=element.kind if element else "equal",
    )


def special(x: Bits, ref: Bits, dut: Bits) -> Special:
    """The special values: how many differ, and all that do."""
    rows = [Row(*map(int, pair)) for pair in zip(x, ref, dut, strict=True)]
    differing = [row for row in rows if row.ref != row.dut]
    return Special(len(rows), len(differing), examples(differing))


def fill(found: Sweep, tally: Tally) -> None:
    """Put what a tally holds into ``found``. Raises ParityBug when the tally contradicts itself."""
    tally.check(found.pairs)
    found.differ = found.pairs - tally.equal
    _, _, largest = tally.by_exponent
    found.max_ulp = int(largest.max()) or None
    found.bins = bins(tally)
    found.results = tally.results.tolist()
    found.input_classes = tally.inputs.tolist()
    found.exponents = exponents(tally)
    found.examples = {name: examples(rows) for name in LISTS if (rows := tally.rows(name))}
    found.outside = tally.outside if found.function in BOUNDED else None


def bins(tally: Tally) -> list[Bin]:
    """Equal pairs, the distances that occur, the other kinds that occur: they add up to all."""
    found = [Bin("equal", tally.equal)]
    for name, below, above in zip(bin_names(), tally.below, tally.above, strict=True):
        if below or above:
            found.append(Bin(name, int(below + above), int(below), int(above)))
    kinds = zip(KINDS, tally.kinds, strict=True)
    return found + [Bin(kind, int(count)) for kind, count in kinds if count]


def exponents(tally: Tally) -> list[Exponent]:
    """Signs and exponents that occur among the inputs, from the most negative upwards."""
    order = [*range(EXPONENTS - 1, _HALF - 1, -1), *range(_HALF)]
    pairs, differ, largest = tally.by_exponent
    return [
        Exponent(
            "-" if at >= _HALF else "+",
            at % _HALF,
            int(pairs[at]),
            int(differ[at]),
            int(largest[at]),
        )
        for at in order
        if pairs[at]
    ]


def remarks(found: Sweep) -> list[str]:
    """What a reader must not overlook."""
    said = []
    for side, count in zip(("ref", "dut"), found.outside or (0, 0), strict=True):
        if count:
            worst = found.examples[f"{side} beyond 1"][0]
            value = getattr(worst, side)
            said.append(
                f"{count:,} results of {side} {getattr(found, side)['name']} are beyond 1 in "
                f"size, first at {worst.x_hex}: {value}"
            )
    tried = found.special.examples if found.special else []
    for count, what in (
        (found.nan_bits, "differences"),
        (sum(one.kind == NAN_PAYLOAD for one in tried), "special values that differ"),
    ):
        if count:
            verb = "is" if count == 1 else "are"
            said.append(
                f"{count:,} of the {what} {verb} NaN against NaN with other bits: bits decide"
            )
    apart = found.special.differ if found.special else 0
    if not found.differ and not apart and found.ref["name"] != found.dut["name"]:
        said.append(
            f"no mismatch at any input: {found.ref['name']} and {found.dut['name']} "
            "may be one implementation"
        )
    return said
