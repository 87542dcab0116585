"""The HTML report of ``parity mathfn``: one self-contained page, in the dress of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from parity.elementary.mathfn import Bin, Example, Sweep, Table, TableRow, percent
from parity.elementary.tally import CLASSES
from parity.presenting import Options, write_text
from parity.status import Verdict
from parity_reports import mathfn_wording as wording
from parity_reports.html_elements import Digits, changed_digits
from parity_reports.html_frame import framed
from parity_reports.html_panels import WORDS, Fact
from parity_reports.mathfn_plot import drift


@dataclass(frozen=True)
class BinView:
    """One line of the histogram; ``share`` in percent of the longest bar."""

    bin: Bin
    share: float
    kind: str


@dataclass(frozen=True)
class ExampleView:
    """One example, both results with their differing digits marked."""

    one: Example
    ref: Digits
    dut: Digits
    distance: str
    kind: str


@dataclass(frozen=True)
class ListView:
    """A list of examples under its title."""

    id: str
    title: str
    rows: list[ExampleView]


@dataclass(frozen=True)
class RowView:
    """One row of Kestrel's table."""

    row: TableRow
    word: str
    kind: str
    measured: str
    rerun: str


class FunctionHtml:
    """Presenter ``html`` of sweeps and tables."""

    name = "html"

    def write(self, found: Sweep | Table, stream: TextIO, options: Options) -> None:
        """Write the page."""
        write_text(stream, render(found, options.json_path))


def render(found: Sweep | Table, json_path: str = "") -> str:
    """The page as ASCII text."""
    if isinstance(found, Table):
        name, context = "mathfn_table.html.j2", _table(found)
    else:
        name, context = "mathfn.html.j2", _sweep(found)
    return framed(name, {**_verdict(found), **context}, json_path)


def _verdict(found: Sweep | Table) -> dict[str, Any]:
    word, kind = WORDS[found.verdict]
    return {
        "who": "parity mathfn",
        "title": wording.quiet_line(found),
        "word": word,
        "kind": kind,
        "reproduce": found.reproduce,
    }


def _sweep(sweep: Sweep) -> dict[str, Any]:
    return {
        "place": wording.headline(sweep),
        "facts": _facts(sweep),
        "about": _about(sweep),
        "bins": _bins(sweep),
        "pairs": sweep.pairs,
        "nav": _navigation(sweep),
        "drift": drift(sweep.exponents),
        "drift_text": wording.drift_text(sweep.exponents),
        "exponents": [one for one in sweep.exponents if one.differ],
        "percent": percent,
        "classes": CLASSES,
        "results": sweep.results,
        "input_classes": sweep.input_classes,
        "lists": _lists(sweep),
        "headers": _headers(sweep),
    }


def _navigation(sweep: Sweep) -> list[tuple[str, str]]:
    """Sections that are there."""
    sections = (
        ("distance", "Distance", True),
        ("drift", "Drift", any(one.differ for one in sweep.exponents)),
        ("classes", "Classes", True),
        ("inputs", "Inputs", bool(_lists(sweep))),
        ("provenance", "Provenance", True),
    )
    return [(id_, name) for id_, name, there in sections if there]


def _facts(sweep: Sweep) -> list[Fact]:
    total = f"of {sweep.pairs:,}"
    facts = [
        Fact("Differ", total, f"{sweep.differ:,}"),
        Fact("Equal", total, f"{sweep.pairs - sweep.differ:,}"),
    ]
    if sweep.max_ulp is not None:
        facts.append(Fact("Largest", f"{sweep.max_ulp:,} ULP"))
    if sweep.special is not None:
        total = f"of {sweep.special.pairs:,}"
        facts.append(Fact("Special, differ", total, f"{sweep.special.differ:,}"))
    return [*facts, Fact("Time", f"{sweep.seconds:,.1f} s on the {sweep.where}")]


def _about(sweep: Sweep) -> list[Fact]:
    sides = (("ref", sweep.ref), ("dut", sweep.dut))
    facts = [Fact(label, about.get("library", ""), about["name"]) for label, about in sides]
    facts.append(Fact("inputs", wording.inputs_text(sweep.inputs)))
    facts.append(Fact("places", wording.places_text(sweep)))
    facts += [Fact("remark", remark) for remark in sweep.remarks]
    return [fact for fact in facts if fact.text or fact.strong]


def _bins(sweep: Sweep) -> list[BinView]:
    """Bars compare the bins that differ: beside the equal ones they would have no length."""
    longest = max((one.count for one in sweep.bins if one.name != "equal"), default=0)
    return [
        BinView(one, round(min(100.0, 100 * one.count / longest), 2), "differs")
        if one.name != "equal" and longest
        else BinView(one, 0.0 if longest else 100.0, "same")
        for one in sweep.bins
    ]


def _lists(sweep: Sweep) -> list[ListView]:
    titles = {"first": "First: the lowest bit patterns", "worst": "Worst: the largest distances"}
    held = dict(sweep.examples)
    if held.get("worst") and held["worst"] == held.get("first"):
        titles["first"] += "; none is worse"
        del held["worst"]
    lists = [
        ListView(name.replace(" ", "-"), titles.get(name, name), _examples(found))
        for name, found in held.items()
    ]
    if sweep.special is not None and sweep.special.differ:
        shown = _examples(sweep.special.examples)
        lists.append(ListView("special", "Special values, counted apart", shown))
    return lists


def _examples(found: Sequence[Example]) -> list[ExampleView]:
    return [
        ExampleView(
            one,
            changed_digits(one.ref_hex, one.dut_hex),
            changed_digits(one.dut_hex, one.ref_hex),
            "none" if one.ulp is None else f"{one.ulp:+,}",
            "" if one.kind == "value" else one.kind,
        )
        for one in found
    ]


def _headers(sweep: Sweep) -> list[tuple[str, str, str]]:
    labels = dict.fromkeys([*sweep.ref, *sweep.dut])
    return [(label, sweep.ref.get(label, ""), sweep.dut.get(label, "")) for label in labels]


def _table(table: Table) -> dict[str, Any]:
    return {
        "place": wording.table_text(table),
        "rows": [_row(row) for row in table.rows],
        "seed": table.seed,
        "versions": table.about,
        "next_step": table.next_step,
        "seconds": table.seconds,
    }


def _row(row: TableRow) -> RowView:
    word, kind = WORDS[row.verdict]
    if row.verdict is not Verdict.NOT_RUN:
        word = "as expected" if row.verdict is Verdict.SAME else "outside"
        if not wording.expected_text(row):
            word, kind = "measured", "warn"
    return RowView(row, word, kind, wording.measured_text(row), wording.expected_text(row))
