"""The sentences that the reports of ``parity mathfn`` share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from parity.elementary.mathfn import Exponent, Sweep, Table, TableRow, percent, share_text
from parity.status import Verdict

EXPONENTS = 4  # exponents named: those with the most differing inputs


def quiet_line(found: Sweep | Table) -> str:
    """Verdict and what it rests on, in one line."""
    word = found.verdict.replace("_", " ")
    text = table_text(found) if isinstance(found, Table) else headline(found)
    return f"{word}: {text}"


def headline(sweep: Sweep) -> str:
    """``expf: 105,600 of 400,002 inputs differ (26.4 %), at most 2 ULP``."""
    if sweep.placed is not None and sweep.placed.side:
        side = sweep.placed.side
        name = (sweep.ref if side == "ref" else sweep.dut)["name"]
        fault = "depends on where an input sits" if sweep.placed.repeats else "is not repeatable"
        return f"{sweep.function}: {side} {name} {fault}"
    text = f"{sweep.function}: {share_text(sweep)}"
    if not sweep.differ and sweep.special is not None and sweep.special.differ:
        text += f"; {sweep.special.differ:,} of {sweep.special.pairs:,} special values do"
    return text


def special_text(sweep: Sweep) -> str:
    """``5 of 95 special values differ``; empty where none were tried."""
    special = sweep.special
    return f"{special.differ:,} of {special.pairs:,} special values differ" if special else ""


def places_text(sweep: Sweep) -> str:
    """Whether results depend on where an input sits."""
    placed = sweep.placed
    if placed is None:
        return ""
    if not placed.repeats:
        return placed.text
    if placed.side:
        return f"{placed.count:,} other results of {placed.side}, first {placed.text}"
    return f"{placed.inputs:,} inputs alone, in slices, strided, backwards: the same bits"


def inputs_text(inputs: Mapping[str, str]) -> str:
    """``400,002 samples drawn uniformly from -100 to 0, seed 7``."""
    if "exhaustive" in inputs:
        return f"exhaustive: {inputs['exhaustive']}"
    return "{samples} samples drawn {drawn}, seed {seed}".format(**inputs)


def table_text(table: Table) -> str:
    """``9 of 14 rows run, 9 of 9 within what is expected``."""
    run = [row for row in table.rows if row.verdict is not Verdict.NOT_RUN]
    within = sum(row.verdict is Verdict.SAME for row in run)
    text = f"{len(run)} of {len(table.rows)} rows run, {within} of {len(run)} as expected"
    return f"Kestrel's table: {text}"


def measured_text(row: TableRow) -> str:
    """``105,600 (26.4 %), at most 2 ULP``, or why there is none."""
    if row.verdict is Verdict.NOT_RUN:
        return f"not run: {row.reason}"
    text = f"{row.differ:,}"
    if row.differ:
        text += f" ({percent(row.differ, row.pairs)})"
    return text if row.max_ulp is None else f"{text}, at most {row.max_ulp:,} ULP"


def expected_text(row: TableRow) -> str:
    """The range a rerun has to fall into; empty where there is none."""
    expected, parts = row.expected, []
    if expected.share is not None:
        parts.append("{:g} to {:g} %".format(*expected.share))
    if expected.count is not None:
        low, high = expected.count
        parts.append(f"{low:,}" if low == high else f"{low:,} to {high:,}")
    if expected.max_ulp is not None:
        parts.append(f"{expected.max_ulp:,} ULP at most")
    return ", ".join(parts)


def drift_text(exponents: Iterable[Exponent]) -> str:
    """The exponents of the input with the most differing inputs, and which share of each."""
    found = sorted((one for one in exponents if one.differ), key=lambda one: -one.differ)
    texts = [f"{one.name} {percent(one.differ, one.pairs)}" for one in found[:EXPONENTS]]
    more = len(found) - EXPONENTS
    return ", ".join(texts) + (f", {more:,} more" if more > 0 else "")


def time_text(sweep: Sweep) -> str:
    """``31.4 s on the host, 137 million inputs a second``."""
    text = f"{sweep.seconds:,.1f} s on the {sweep.where}"
    rate = sweep.pairs / sweep.seconds / 1e6 if sweep.seconds else 0.0
    return f"{text}, {rate:,.0f} million inputs a second" if rate >= 1 else text
