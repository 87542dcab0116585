"""The HTML report of ``parity mathfn``: one self-contained page, in the dress of the other one.

No network, no inline handler, no inline style: the policy in the head admits the one style sheet
and the one script by their digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, TextIO

from parity import __version__
from parity.elementary.mathfn import Bin, Example, Sweep, Table, TableRow, percent
from parity.elementary.tally import CLASSES
from parity.presenting import Options, printable, write_text
from parity.status import Verdict
from parity_reports import mathfn_wording as wording
from parity_reports.html_panels import WORDS, Digits, Fact, changed_digits, hex_groups
from parity_reports.html_report import content_policy
from parity_reports.mathfn_plot import drift

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = ("mathfn.html.j2", "mathfn_table.html.j2", "mathfn_frame.html.j2", "macros.html.j2")


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
    page = _environment().get_template(name).render(**context, **_frame(found, json_path))
    return page.encode("ascii", "xmlcharrefreplace").decode("ascii")


@cache
def _asset(name: str) -> str:
    return (resources.files("parity_reports") / "templates" / name).read_text(encoding="ascii")


@cache
def _environment() -> Environment:
    from jinja2 import DictLoader, Environment, StrictUndefined

    environment = Environment(
        loader=DictLoader({name: _asset(name) for name in TEMPLATES}),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["hex_groups"] = hex_groups
    return environment


def _shown(value: Any) -> Any:
    """Control characters of data as escapes; markup of ours as it is."""
    return printable(value) if type(value) is str else value


def _frame(found: Sweep | Table, json_path: str) -> dict[str, Any]:
    from markupsafe import Markup

    css, js = _asset("report.css") + _asset("mathfn.css"), _asset("report.js")
    word, kind = WORDS[found.verdict]
    return {
        "policy": content_policy(css, js),
        "css": Markup(css),
        "js": Markup(js),
        "title": wording.quiet_line(found),
        "word": word,
        "kind": kind,
        "reproduce": found.reproduce,
        "version": __version__,
        "whole": f"in {json_path}" if json_path else "what --json FILE writes",
        "elsewhere": "",
    }


def _sweep(sweep: Sweep) -> dict[str, Any]:
    return {
        "place": wording.headline(sweep),
        "facts": _facts(sweep),
        "about": _about(sweep),
        "bins": _bins(sweep),
        "pairs": sweep.pairs,
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
    lists = [
        ListView(name.replace(" ", "-"), titles.get(name, name), _examples(found))
        for name, found in sweep.examples.items()
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
        "about": table.about,
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
