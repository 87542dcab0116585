"""Kestrel's table: every figure its articles give for an elementary function, measured again.

A row is red when its figure leaves the range a rerun has to fall into; a row that needs a device
and finds none is not run, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from parity import __version__
from parity.builds.provenance import COMPILED, tells_code
from parity.comparison.elements import compare_tensors
from parity.elementary.functions import Implementation, open_implementation
from parity.elementary.mathfn import Example, Expected, Table, TableRow, implementation_facts
from parity.elementary.tally import Row
from parity.errors import NotRunError, ParityBug
from parity.progress import Progress
from parity.runs.probe import worst
from parity.status import Verdict
from parity_probes.mathfn_inputs import half_near_zero, uniform
from parity_probes.mathfn_result import examples

Bits = npt.NDArray[np.uint32]
Drawn = Callable[[int, tuple[float, float], int], Bits]

EXP, ROOT = (-100.0, 0.0), (0.0, 100.0)
WIDE, NARROW = (-10_000.0, 10_000.0), (-35.0, 35.0)
EXPS, ANGLES = 400_002, 600_002  # samples, as many as the articles drew
NONE = (0, 0)


@dataclass(frozen=True)
class Comparison:
    """What one row compares. ``function``: of ``parity.functions``, or exp64, exp over float64."""

    name: str
    function: str
    ref: str
    dut: str
    samples: int
    domain: tuple[float, float]
    expected: Expected
    drawn: Drawn = uniform

    @property
    def inputs(self) -> str:
        """``400,002 in [-100, 0]``."""
        low, high = self.domain
        text = f"{self.samples:,} in [{low:g}, {high:g}]"
        return text if self.drawn is uniform else f"{text}, half near 0"


# What a rerun has to give. Shares depend on the draw, so a range is as wide as the draws seen.
COMPARISONS = (
    Comparison(
        "device expf against the replica", "expf", "ucrt", "cuda", EXPS, EXP,
        Expected("28.3 %, at most 2 ULP", share=(24.0, 33.0), max_ulp=2),
    ),
    Comparison(
        "device expf against the replica", "expf", "ucrt", "cuda", EXPS, EXP,
        Expected("28.3 %, at most 2 ULP", share=(24.0, 33.0), max_ulp=2),
        half_near_zero,
    ),
    Comparison(
        "f32(exp(f64 x)) against the replica", "expf", "ucrt", "exp_via_double", EXPS, EXP,
        Expected("28 of 400,002, each 1 ULP", count=(15, 45), max_ulp=1),
    ),
    Comparison(
        "the same on the device", "expf", "ucrt", "exp_via_double@cuda", EXPS, EXP,
        Expected("28 of 400,002, each 1 ULP", count=(15, 45), max_ulp=1),
    ),
    Comparison(
        "device float64 exp against this platform's", "exp64", "exp_via_double",
        "exp_via_double@cuda", EXPS, EXP, Expected("0 of 400,002, against the UCRT's"),
    ),
    Comparison(
        "device rsqrtf against 1/sqrtf", "rsqrt", "ucrt", "cuda", EXPS, ROOT,
        Expected("34.9 %", share=(33.0, 38.0)),
    ),
    Comparison(
        "device 1/sqrtf against the CPU's", "rsqrt", "ucrt", "ucrt@cuda", EXPS, ROOT,
        Expected("0", count=NONE),
    ),
    *(
        Comparison(
            f"device {function} against the replica", function, "ucrt", "cuda", ANGLES, domain,
            Expected("about 20 %"),
        )
        for domain in (WIDE, NARROW)
        for function in ("cosf", "sinf")
    ),
    *(
        Comparison(
            f"replica of {function}, device against CPU", function, "ucrt", "ucrt@cuda", samples,
            domain, Expected(f"0 of {samples:,}, against the UCRT", count=NONE),
        )
        for function, samples, domain in (
            ("expf", EXPS, EXP), ("cosf", ANGLES, WIDE), ("sinf", ANGLES, WIDE)
        )
    ),
)  # fmt: skip


def measure(seed: int, reproduce: str, progress: Progress) -> Table:
    """Run what this machine can run."""
    began = time.monotonic()
    opened: dict[str, Implementation | NotRunError] = {}
    rows = []
    for place, comparison in enumerate(COMPARISONS):
        progress.update("table", comparison.name, place, len(COMPARISONS), "rows")
        rows.append(measure_row(comparison, seed, opened))
    table = Table(
        verdict=worst([row.verdict for row in rows]),
        seed=seed,
        rows=rows,
        about=_about(opened),
        reproduce=reproduce,
        next_step=_next_step(opened),
    )
    table.seconds = time.monotonic() - began
    return table


def _next_step(opened: dict[str, Implementation | NotRunError]) -> str:
    """What to do about the rows that were not run, in one line."""
    steps = [found.next_step for found in opened.values() if isinstance(found, NotRunError)]
    return "; ".join(dict.fromkeys(steps))


def measure_row(
    comparison: Comparison, seed: int, opened: dict[str, Implementation | NotRunError]
) -> TableRow:
    """One row; ``opened`` keeps implementations from row to row."""
    row = TableRow(
        name=comparison.name,
        ref=comparison.ref,
        dut=comparison.dut,
        inputs=comparison.inputs,
        expected=comparison.expected,
        verdict=Verdict.NOT_RUN,
    )
    sides = []
    for name in (comparison.ref, comparison.dut):
        found = _open(name, opened)
        if isinstance(found, NotRunError):
            row.reason = found.message
            return row
        sides.append(found)
    bits = comparison.drawn(comparison.samples, comparison.domain, seed)
    _compare(row, comparison.function, sides, bits)
    row.verdict = Verdict.SAME if within(row) else Verdict.DIVERGED
    return row


def within(row: TableRow) -> bool:
    """Whether a measured row is within what is expected of it."""
    expected, share = row.expected, 100 * row.differ / row.pairs
    if expected.share and not expected.share[0] <= share <= expected.share[1]:
        return False
    if expected.count and not expected.count[0] <= row.differ <= expected.count[1]:
        return False
    return expected.max_ulp is None or (row.max_ulp or 0) <= expected.max_ulp


def _open(name: str, opened: dict[str, Implementation | NotRunError]) -> Any:
    if name not in opened:
        try:
            opened[name] = open_implementation(name)
        except NotRunError as error:
            opened[name] = error
    return opened[name]


def _compare(row: TableRow, function: str, sides: list[Any], bits: Bits) -> None:
    x = bits.view(np.float32)
    if function == "exp64":
        row.unit = "f64"
        wide = x.astype(np.float64)
        ref, dut = (np.asarray(side.exp64(wide)) for side in sides)
    else:
        ref, dut = (np.asarray(side.evaluate(function, x)) for side in sides)
    if ref.shape != x.shape or dut.shape != x.shape:
        raise ParityBug(f"{row.name}: {ref.shape} and {dut.shape} results of {x.shape} inputs")
    found = compare_tensors(row.name, ref, dut, limit=1)
    row.pairs, row.differ, row.max_ulp = found.total, found.differ, found.max_ulp
    if found.rows:
        row.first = _first(x, found.rows[0].index[0], ref, dut)


def _first(x: npt.NDArray[np.float32], at: int, ref: Any, dut: Any) -> Example:
    """The first differing sample in the order drawn."""
    word = int(x.view(np.uint32)[at])
    if ref.dtype == np.float32:
        return examples([Row(word, *(int(side.view(np.uint32)[at]) for side in (ref, dut)))])[0]
    (element,) = compare_tensors("", ref[at : at + 1], dut[at : at + 1], limit=1).rows
    (given,) = examples([Row(word, 0, 0)])
    return Example(
        given.x_hex,
        element.ref_hex,
        element.dut_hex,
        given.x,
        element.ref_value,
        element.dut_value,
        element.ulp,
        element.kind,
    )


def _about(opened: dict[str, Implementation | NotRunError]) -> dict[str, str]:
    """Versions of everything that ran."""
    about = {"parity": __version__, "numpy": np.__version__}
    for name, found in opened.items():
        if not isinstance(found, NotRunError):
            told = found.describe()
            code = f"; compiled {told[COMPILED]}" if tells_code(told) else ""
            about[name] = implementation_facts(told) + code
    return about
