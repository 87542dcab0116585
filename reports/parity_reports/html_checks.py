"""The HTML report of probes, promises, ladders, gates and selftests: one page, in the one dress.

The panels are made of the records as they stand in the JSON file; a new one is a line of PANELS. No
panel judges: verdicts, states and counts are the record's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from parity.presenting import Options, write_text
from parity.runs.checks import Check, CheckRun
from parity.status import Verdict
from parity_reports import html_gate, html_ladder, html_probes
from parity_reports.html_elements import LISTED
from parity_reports.html_frame import framed
from parity_reports.html_panels import SHOWN, WORDS, Fact
from parity_reports.html_shell import Panel, Section, fragment

if TYPE_CHECKING:
    from markupsafe import Markup

CLAIMS = "Claims"
_BECAME = {
    Verdict.SAME: "that hold",
    Verdict.DIVERGED: "that fail",
    Verdict.UNSTABLE: "that are unstable",
    Verdict.NOT_RUN: "not run",
}
_KINDS = {"OPT-IN": "warn"}  # equal and not faster: nothing is wrong


def _records(run: CheckRun, name: str) -> list[Mapping[str, Any]]:
    return [record for record in run.records if record["format"] == name]


def claims(run: CheckRun) -> Markup | None:
    """Each of several claims and what became of it; trials and promises have their own tables."""
    if len(run.checks) < 2 or _noun(run) != CLAIMS:
        return None
    rows = [(check, *WORDS[check.verdict], _details(check, run)) for check in run.checks]
    return _made("claims", rows)


def _details(check: Check, run: CheckRun) -> list[tuple[str, str]]:
    """Label and text of a probe's facts; else lines without a label."""
    found = next((one for one in _records(run, "parity-probe") if one["name"] == check.name), None)
    if found is not None:
        return [(label, text) for label, text in found["facts"]]
    return [("", line) for line in check.details]


def promises(run: CheckRun) -> Markup | None:
    """What became of each promise of the engine Protocol."""
    found = [one for record in _records(run, "parity-conformance") for one in record["promises"]]
    return _made("promises", found) if found else None


def faults(run: CheckRun) -> Markup | None:
    """The table of a selftest: every fault at every level."""
    found = _records(run, "parity-selftest")
    if not found or not found[0]["trials"]:
        return None
    trials = found[0]["trials"]
    levels = list(dict.fromkeys(one["level"] for one in trials))
    rows: dict[str, dict[str, Any]] = {}
    for one in trials:
        rows.setdefault(one["fault"], {})[one["level"]] = one
    missed = [one for one in trials if not one["caught"]]
    return _made("faults", levels, rows, missed, found[0]["not_run"])


def planted(run: CheckRun) -> Markup | None:
    """Where each level of a selftest plants its faults: the keys at which they must be found."""
    found = _records(run, "parity-selftest")
    if not found or not found[0]["trials"]:
        return None
    return _made("planted", found[0]["trials"], LISTED, SHOWN)


def provenance(run: CheckRun) -> Markup | None:
    """What ran: compiled code, mask, packages and the rest that each side tells; collapsed."""
    sides: dict[str, Mapping[str, str]] = {}
    for record in run.records:
        if record.get("about"):
            sides[record["name"]] = record["about"]
        for role in ("base", "candidate", "ref"):
            if isinstance(record.get(role), Mapping):
                sides[role] = record[role]
        for rung in record.get("rungs", ()):
            sides[rung["name"]] = rung["dut"]
    names = list(dict.fromkeys(name for side in sides.values() for name in side))
    rows = [(name, [side.get(name, "") for side in sides.values()]) for name in names]
    return _made("sides", list(sides), rows) if rows else None


def _said(text: str) -> Any:
    return lambda _run: text


# In the order of the page. Every function is asked with the run; None leaves the section out.
PANELS: tuple[Panel[CheckRun], ...] = (
    Panel("claims", "Claims", claims, _said("Each with what was seen.")),
    Panel("rows", "Rows", html_probes.rows, html_probes.rows_lead),
    Panel("batches", "Batches", html_probes.batches, html_probes.batches_lead),
    Panel("rollback", "Rollback", html_probes.rollback, html_probes.rollback_lead),
    Panel("chunks", "Chunks", html_probes.chunks, html_probes.chunks_lead),
    Panel("controls", "Controls", html_probes.controls, html_probes.controls_lead),
    Panel("cost", "Cost", html_probes.cost, html_probes.cost_lead),
    Panel("lines", "Published lines", html_probes.lines, html_probes.lines_lead),
    Panel("ladder", "Ladder", html_ladder.rungs, html_ladder.rungs_lead),
    Panel("equality", "Equality", html_gate.equality, html_gate.equality_lead),
    Panel("timing", "Timing", html_gate.timing, html_gate.timing_lead),
    Panel("decision", "Decision", html_gate.decision, html_gate.decision_lead),
    Panel("promises", "Promises", promises, _said("Of every engine, in the order asked.")),
    Panel("faults", "Faults", faults, _said("Planted one by one; each must be seen at its key.")),
    Panel("planted", "Trials", planted, _said("Where each fault was planted and found.")),
    Panel("provenance", "Provenance", provenance, _said("Of what this report is.")),
)


class HtmlChecks:
    """Presenter ``html`` of a run of checks."""

    name = "html"

    def write(self, run: CheckRun, stream: TextIO, options: Options) -> None:
        """Write the page; of the options only ``json_path`` matters, as the place of the rest."""
        write_text(stream, render(run, options.json_path))


def render(run: CheckRun, json_path: str = "") -> str:
    """The page as ASCII text."""
    sections = _sections(run)
    context = {
        **_verdict(run),
        "sections": sections,
        "nav": [(section.id, section.title) for section in sections],
        "held": f"Limits of this file: lists of {LISTED} rows.",
    }
    return framed("checks.html.j2", context, json_path)


def _sections(run: CheckRun) -> list[Section]:
    made = ((panel, panel.make(run)) for panel in PANELS)
    return [
        Section(panel.id, panel.title, panel.lead(run), body)
        for panel, body in made
        if body is not None
    ]


def _verdict(run: CheckRun) -> dict[str, Any]:
    """What stands before the first scroll."""
    word, kind = WORDS[run.verdict]
    first = next((check.first for check in run.checks if check.first is not None), "")
    failed = [check for check in run.checks if check.verdict.exit_status == 1]
    again = next((check.reproduce for check in failed if check.reproduce), run.reproduce)
    return {
        "who": f"parity {run.name}",
        "title": f"{run.called}: {run.said}",
        "word": run.word.capitalize() if run.word else word,
        "kind": _KINDS.get(run.word, kind),
        "place": run.said,
        "at": first,
        "reproduce": again,
        "steps": _steps(run),
        "facts": _facts(run),
        "about": _about(run),
    }


def _steps(run: CheckRun) -> list[str]:
    """What to do about a run that could not be made; a probe tells it among its facts."""
    if run.verdict is not Verdict.NOT_RUN or _records(run, "parity-probe"):
        return []
    return [line for check in run.checks[:1] for line in check.details]


def _noun(run: CheckRun) -> str:
    """What the checks of a run are called."""
    if _records(run, "parity-selftest"):
        return "Trials"
    return "Promises" if _records(run, "parity-conformance") else CLAIMS


def _facts(run: CheckRun) -> list[Fact]:
    """N of N, and what stands beside it."""
    noun, total = _noun(run), len(run.checks)
    counts = Counter(check.verdict for check in run.checks)
    found = [
        Fact(f"{noun} {_BECAME[verdict]}", f"of {total:,}", f"{counts[verdict]:,}")
        for verdict in Verdict
        if counts[verdict] and total > 1
    ]
    compared = sum(check.compared for check in run.checks)
    if compared and noun == CLAIMS:
        found.append(Fact("Keys compared", "", f"{compared:,}"))
    if run.seconds:
        found.append(Fact("Time", f"{run.seconds:,.1f} s"))
    return found


def _about(run: CheckRun) -> list[Fact]:
    """What ran; of a single claim all that was seen."""
    facts = [Fact(label, text) for label, text in run.facts.items()]
    if len(run.checks) == 1:
        facts += [Fact(label, text) for label, text in _details(run.checks[0], run) if label]
    return facts


def _made(name: str, *values: Any) -> Markup:
    return fragment(name, *values, template="panels.html.j2")
