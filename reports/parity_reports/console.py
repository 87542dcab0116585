"""The console report: the verdict, labelled facts, one strip, four elements, the line to rerun.

One screen for people; plain text in a pipe. Where all of it would be longer less is told, and what
is left out is counted. Keys, hashes, values and commands are never cut: what is wider than the
screen runs long. Every fact comes from the tree.
"""

from __future__ import annotations

from typing import TextIO

from parity.presenting import Options, require_consistent, write_text
from parity.status import Verdict
from parity.tree import CONTAMINATED, KeyRow, Tree
from parity_reports import isolating, profiling, why, wording
from parity_reports.console_elements import show_elements
from parity_reports.facts import STEPS, Limits, closing, facts
from parity_reports.layout import INDENT, Line, Page, measure, paint
from parity_reports.screen import Screen, screen_of
from parity_reports.states import look
from parity_reports.values import parse_key, parse_value


class ConsoleReport:
    """Presenter ``console``."""

    name = "console"

    def write(self, tree: Tree, stream: TextIO, options: Options) -> None:
        """Write the report as ``stream`` can show it: its size, colours and characters."""
        screen = screen_of(stream, options)
        quiet, json_path = options.quiet, options.json_path
        write_text(stream, self.render(tree, screen, quiet=quiet, json_path=json_path))

    def render(
        self, tree: Tree, screen: Screen | None = None, *, quiet: bool = False, json_path: str = ""
    ) -> str:
        """The report as text. Raises ParityBug when the tree contradicts itself."""
        require_consistent(tree)
        shown = screen or Screen()
        if quiet:
            page = Page(shown.width, shown.dot)
            page.line((wording.quiet_line(tree), ""), indent=0)
        else:
            page = _fitting(tree, shown, json_path)
        return paint(page.lines, shown.color)


def _fitting(tree: Tree, screen: Screen, json_path: str) -> Page:
    """The report with as much as the screen has lines for; what is left out is counted."""
    for limits in STEPS:
        page = Page(screen.width, screen.dot)
        _fill(page, tree, json_path, limits)
        if len(page.lines) <= screen.height:
            break
    return page


def _fill(page: Page, tree: Tree, json_path: str, limits: Limits) -> None:
    page.line(*wording.verdict_spans(tree), indent=0)
    page.gap()
    for fact in facts(tree, limits):
        page.fact(fact.label, fact.text, fact.foldable)
    if tree.verdict is Verdict.SAME or tree.isolation is not None:
        _tables(page, tree, limits.rows)
    else:
        _panels(page, tree, json_path, limits.elements)
    _profile(page, tree, limits.layers)
    if tree.verdict is not Verdict.SAME:
        _reproduce(page, tree)
    for fact in closing(tree, limits):
        page.fact(fact.label, fact.text)
    if not page.lines[-1]:  # nothing followed the verdict
        page.lines.pop()


def _tables(page: Page, tree: Tree, most: int) -> None:
    """What was tried, a table a kind, in that order; placements that change nothing in one line."""
    for table in isolating.tables(tree):
        rows, equal = table.split() if table.name == isolating.PLACEMENT else (table.rows, "")
        page.gap()
        if not rows:
            page.fact(table.heads[0], equal)
            continue
        page.table(table.heads, rows[:most])
        if len(rows) > most:
            page.text(f"{len(rows) - most:,} more in the JSON and HTML reports")
        if equal:
            page.text(equal)


def _profile(page: Page, tree: Tree, most: int) -> None:
    """How far apart the sides are, a line a layer."""
    if tree.profile is None or not tree.profile.rows or not most:
        return
    lines = profiling.layer_lines(tree.profile)
    shown, heads = profiling.chosen(lines, most), profiling.heads(tree.profile)
    page.gap()
    rows = [profiling.cells(line, tree.profile.judged) for line in shown]
    page.table(heads, rows, right=len(heads) - 1)
    if len(lines) > len(shown):
        left = wording.counted(len(lines) - len(shown), "more layer")
        page.text(f"{left} in the JSON and HTML reports")
    page.gap()


def _reproduce(page: Page, tree: Tree) -> None:
    page.gap()
    if tree.reproduce:
        page.line(("reproduce:", "dim"))
        page.line((tree.reproduce, ""))
    if tree.repro:
        page.line((wording.repro_sentence(tree), ""))


def _panels(page: Page, whole: Tree, json_path: str, shown: int) -> None:
    """The strip and the elements: after a contaminated start those of the decoding, unless a birth
    in the prompt is known; of a side that is not repeatable those of its runs."""
    tree, names = wording.compared(whole)
    if tree.reason == CONTAMINATED and why.news(tree) != why.ALL:
        if tree.decode is not None and tree.decode.verdict is Verdict.DIVERGED:
            _panels(page, tree.decode, json_path, shown)
        return
    birth = why.leading_birth(tree) if tree.reason == CONTAMINATED else None
    row = wording.first_row(tree)
    if birth is not None and birth.key != tree.first:
        page.gap()
        _key_line(page, KeyRow(birth.key, birth.state, birth.ref, birth.dut), names)
        if birth.elements is not None:
            show_elements(page, birth.elements, json_path, shown)
        return
    if row is not None:
        page.gap()
        _strip(page, tree, row)
        _key_line(page, row, names)
    if tree.elements is not None:
        if row is None or row.key != tree.elements.key:
            page.gap()
            page.line((tree.elements.key, "key"))
        show_elements(page, tree.elements, json_path, shown)


def _strip(page: Page, tree: Tree, first: KeyRow) -> None:
    """The fields of the layer that holds the first difference, with the state of each."""
    place = parse_key(first.key)
    if place is None:
        return
    parts: list[Line] = []
    for row in tree.keys:
        key = parse_key(row.key) if row.segment == first.segment else None
        if key is not None and (key.pos, key.layer) == (place.pos, place.layer):
            shown = look(row)
            parts.append([(f"{key.field} ", ""), (shown.word, shown.role)])
    where = "after the last layer" if place.layer is None else f"layer {place.layer}"
    segment = f" in segment {first.segment}" if first.segment else ""
    page.strip(f"t{place.pos} {where}{segment}", parts)


def _key_line(page: Page, row: KeyRow, names: tuple[str, str]) -> None:
    """``t33_l7_attn  f32[4,32]  ref 007d1b69cacb5add  dut 3ce1423530a778c8``."""
    ref, dut = parse_value(row.ref), parse_value(row.dut)
    plain = row.ref and row.dut and ref.type == dut.type and not (ref.nonfinite or dut.nonfinite)
    parts = [row.key, ref.type] if plain and ref.type else [row.key]
    if row.ref or row.dut:
        texts = (ref.digest, dut.digest) if plain else (row.ref or "absent", row.dut or "absent")
        parts += [f"{name} {text}" for name, text in zip(names, texts, strict=True)]
    if INDENT + measure("  ".join(parts)) <= page.width:
        page.line((row.key, "key"), *((f"  {part}", "") for part in parts[1:]))
        return
    page.line((row.key, "key"))
    for part in parts[1:]:
        page.line((part, ""), indent=2 * INDENT)
