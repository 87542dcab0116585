"""The Markdown report: the comment under a pull request.

The order of the console: verdict, facts, the line to rerun, then the first key, where differences
begin, and what isolation tried. Lists of 12 rows, and how many more there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

from parity.presenting import Options, require_consistent, write_text
from parity.status import Verdict
from parity.tree import CONTAMINATED, Birth, Births, KeyRow, Tree
from parity_reports import isolating, profiling, why, wording
from parity_reports.axes import leading_axis
from parity_reports.facts import Fact, closing, facts
from parity_reports.markdown_text import code, fence, prose, spans, table
from parity_reports.states import sourced_name
from parity_reports.summing import HEADS, order_rows

ROWS = 12  # of one list


class MarkdownReport:
    """Presenter ``markdown`` of a divergence tree."""

    name = "markdown"

    def write(self, tree: Tree, stream: TextIO, options: Options) -> None:
        """Write the report; of the options only ``json_path`` matters, as the place of the rest."""
        write_text(stream, render(tree, options.json_path))


def render(tree: Tree, json_path: str = "") -> str:
    """The report as text. Raises ParityBug when the tree contradicts itself."""
    require_consistent(tree)
    rest = f"in {json_path}" if json_path else "with --json FILE"
    lines = [f"### parity: {spans(wording.verdict_spans(tree))}", ""]
    lead, told = _parted(facts(tree))
    lines += _lead(lead)
    lines += _steps(tree)
    lines += reproduce(tree.reproduce, wording.replay_command(tree))
    lines += fact_table([*told, *closing(tree)])
    lines += _profile(tree, rest)
    lines += _first_key(tree)
    lines += _births(tree, rest)
    lines += _orders(tree, rest)
    lines += _tried(tree, rest)
    return "\n".join(lines).rstrip("\n") + "\n"


def fact_table(told: Sequence[Fact]) -> list[str]:
    """Labels and texts; a fact that goes on has an empty label. Commands stand elsewhere."""
    rows = [(prose(fact.label), prose(fact.text)) for fact in told if fact.foldable]
    return [*table(("", ""), rows), ""] if rows else []


def reproduce(*commands: str) -> list[str]:
    """The lines to copy, in a fence of their own."""
    given = [command for command in commands if command]
    return ["Reproduce:", "", *fence(given), ""] if given else []


def more(listed: int, total: int, rest: str) -> list[str]:
    """``188 more in run.json``; nothing where all are listed."""
    return [prose(f"{total - listed:,} more {rest}"), ""] if total > listed else []


def _parted(told: Sequence[Fact]) -> tuple[list[Fact], list[Fact]]:
    """The facts that say why, and the others; births have a table of their own."""
    lead, rest, label = [], [], ""
    for fact in told:
        label = fact.label or label
        if label in ("cause", "op", "start"):
            lead.append(fact)
        elif label != "births":
            rest.append(fact)
    return lead, rest


def _lead(told: Sequence[Fact]) -> Iterator[str]:
    """A paragraph a fact."""
    for fact in told:
        label = f"**{prose(fact.label.capitalize())}:** " if fact.label else ""
        yield from (f"{label}{prose(fact.text)}", "")


def _steps(tree: Tree) -> list[str]:
    """What to do next about a run that was not run."""
    if tree.verdict is not Verdict.NOT_RUN:
        return []
    steps = wording.reason_lines(tree)[1:]
    return ["Next:", "", *fence(steps), ""] if steps else []


def _profile(tree: Tree, rest: str) -> Iterator[str]:
    """How far apart the sides are, a line a layer."""
    if tree.profile is None or not tree.profile.rows:
        return
    lines, judged = profiling.layer_lines(tree.profile), tree.profile.judged
    shown = profiling.chosen(lines, ROWS)
    rows = [[prose(text) for text in profiling.cells(line, judged)[:-1]] for line in shown]
    places = [code(profiling.place_of(line.worst) or "nowhere") for line in shown]
    heads = profiling.heads(tree.profile)
    yield from table(heads, [(*row, place) for row, place in zip(rows, places, strict=True)])
    yield ""
    yield from more(len(shown), len(lines), f"layers {rest}")


def _first_key(tree: Tree) -> Iterator[str]:
    """The first key with both sides, and how its elements differ."""
    shown, names = wording.compared(tree)
    if tree.reason == CONTAMINATED:  # the first key is a false lead
        shown = tree.decode or shown
    row = wording.first_row(shown)
    if row is None or shown.reason == CONTAMINATED:
        return
    yield from table(("key", "state", *names), [_key_cells(row)])
    yield ""
    found = shown.elements
    if found is not None and found.key == row.key:
        said = wording.elements_sentence(found, leading_axis(found), bins=True)
        for text in (said, found.note):
            if text:
                yield from (prose(text), "")


def _key_cells(row: KeyRow) -> tuple[str, ...]:
    sides = (code(text) if text else "absent" for text in (row.ref, row.dut))
    return code(row.key), prose(sourced_name(row)), *sides


def _births(tree: Tree, rest: str) -> Iterator[str]:
    """Where differences begin, of the run and of the decoding after a contaminated start."""
    decoded = tree.decode.births if tree.decode is not None else None
    shown, _ = wording.compared(tree)
    titles = ("Differences begin at:", "In the decoding differences begin at:")
    for title, births in zip(titles, (shown.births, decoded), strict=True):
        if births is None or not births.found:
            continue
        yield from (title, "")
        yield from _birth_table(births)
        yield ""
        yield from more(min(ROWS, len(births.found)), len(births.found), rest)
        if not births.complete:
            yield from (prose(why.incomplete_sentence(births)), "")


def _orders(tree: Tree, rest: str) -> Iterator[str]:
    """How both sides add where differences begin."""
    rows = order_rows(tree)
    if rows:
        yield from ("Both sides add:", "")
        cells = [(code(key), *map(prose, texts)) for key, *texts in rows[:ROWS]]
        yield from table(HEADS, cells)
        yield ""
        yield from more(min(ROWS, len(rows)), len(rows), rest)


def _birth_table(births: Births) -> list[str]:
    heads = ("born", "op", "ref", "dut", "on the ref's inputs")
    return table(heads, [_birth_cells(birth) for birth in births.found[:ROWS]])


def _birth_cells(birth: Birth) -> tuple[str, ...]:
    said = [birth.evidence, why.weights_sentence(birth), why.marks_sentence(birth)]
    if birth.elements is not None:
        said.insert(0, wording.elements_sentence(birth.elements, leading_axis(birth.elements)))
    text = "; ".join(part for part in said if part)
    return code(birth.key), prose(birth.op), code(birth.ref), code(birth.dut), prose(text)


def _tried(tree: Tree, rest: str) -> Iterator[str]:
    """The tables of an isolation."""
    for found in isolating.tables(tree):
        rows = [list(map(prose, row)) for row in found.rows[:ROWS]]
        yield from table([prose(head) for head in found.heads], rows, right=1)
        yield ""
        yield from more(len(rows), len(found.rows), rest)
