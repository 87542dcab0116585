"""The console report: the verdict, labelled facts, one strip, four elements, the line to rerun.

One screen for people; plain text in a pipe. Keys, hashes, values and commands are never cut: what
is wider than the screen runs long. Every fact comes from the tree.
"""

from __future__ import annotations

import os
from typing import TextIO

from parity.presenting import Options, require_consistent, write_text
from parity.status import Verdict
from parity.tree import CONTAMINATED, ElementRow, Elements, KeyRow, KeyState, Tree
from parity_reports import wording
from parity_reports.axes import axis_names, leading_axis
from parity_reports.layout import INDENT, Line, Page, measure, paint
from parity_reports.values import parse_key, parse_value

WIDTH = 80  # columns where the stream is no terminal, or does not know its width
NARROWEST = 20
SHOWN = 4  # elements in the table; the JSON holds the rest
_GAPS = ("", "  ", "  ", "   ", "  ", "   ")  # before each column of the elements
_STRIP = {
    KeyState.SAME: ("ok", "dim"),
    KeyState.DIFFERS: ("DIFF", "diff"),
    KeyState.MISSING: ("missing", "diff"),
    KeyState.EXTRA: ("extra", "diff"),
    KeyState.NOT_COMPARABLE: ("not comparable", "odd"),
}


class ConsoleReport:
    """Presenter ``console``."""

    name = "console"

    def write(self, tree: Tree, stream: TextIO, options: Options) -> None:
        """Write the report as ``stream`` can show it: its width, colours and characters."""
        terminal = stream.isatty()
        color = terminal and _color_wanted() if options.color is None else options.color
        width = options.width or (_terminal_width(stream) if terminal else WIDTH)
        text = self.render(
            tree,
            width=width,
            color=color,
            quiet=options.quiet,
            json_path=options.json_path,
            dot="·" if _encodes(stream, "·") else "|",
        )
        write_text(stream, text)

    def render(
        self,
        tree: Tree,
        *,
        width: int = WIDTH,
        color: bool = False,
        quiet: bool = False,
        json_path: str = "",
        dot: str = "·",
    ) -> str:
        """The report as text. Raises ParityBug when the tree contradicts itself."""
        require_consistent(tree)
        page = Page(max(width, NARROWEST), dot)
        if quiet:
            page.line((wording.quiet_line(tree), ""), indent=0)
        else:
            _fill(page, tree, json_path)
        return paint(page.lines, color)


def _fill(page: Page, tree: Tree, json_path: str) -> None:
    page.line(*wording.verdict_spans(tree), indent=0)
    page.gap()
    if tree.verdict is Verdict.SAME:
        _green_facts(page, tree)
    else:
        _red_facts(page, tree)
        _panels(page, tree, json_path)
        _reproduce(page, tree)
    page.fact("time", wording.time_sentence(tree.seconds))
    for note in tree.notes:
        page.fact("note", note)
    if not page.lines[-1]:  # nothing followed the verdict
        page.lines.pop()


def _green_facts(page: Page, tree: Tree) -> None:
    _sides(page, tree)
    _run(page, tree)
    page.fact("states", wording.states_sentence(tree.states))
    page.fact("level", f"{tree.level} (asked for: {tree.level_asked})")
    _checks(page, tree)


def _red_facts(page: Page, tree: Tree) -> None:
    not_run = tree.verdict is Verdict.NOT_RUN
    for number, step in enumerate(wording.reason_lines(tree)[1:] if not_run else []):
        page.fact("" if number else "next", step, foldable=False)
    if tree.inputs:
        page.fact("inputs", wording.inputs_sentence(tree))
    start = next((s for s in tree.states if s.when == "start" and not s.equal), None)
    if start is not None and tree.reason == CONTAMINATED:
        page.fact("start", wording.parts_sentence(start))
    elif not all(state.equal for state in tree.states):
        page.fact("states", wording.states_sentence(tree.states))
    if tree.decode is not None:
        page.fact("decode", wording.decode_sentence(tree.decode))
    if tree.counts.total:
        page.fact("keys", wording.keys_sentence(tree))
    if not not_run:
        page.fact("level", f"{tree.level} (asked for: {tree.level_asked})")
    if tree.greedy:
        page.fact("greedy", wording.greedy_sentence(tree))
    _checks(page, tree)
    _sides(page, tree)


def _checks(page: Page, tree: Tree) -> None:
    if tree.control is not None:
        page.fact("control", wording.control_sentence(tree.control))
    if tree.search is not None:
        page.fact("search", wording.search_sentence(tree.search))


def _sides(page: Page, tree: Tree) -> None:
    sides = {"ref": tree.ref, "dut": tree.dut}
    specs = {name: header.get("spec", "") for name, header in sides.items()}
    column = max(measure(spec) for spec in specs.values()) + 4
    for name, header in sides.items():
        spec, facts = specs[name], wording.side_facts(header)
        gap = " " * (column - measure(spec)) if spec and facts else ""
        page.fact(name, f"{spec}{gap}{facts}")


def _run(page: Page, tree: Tree) -> None:
    page.fact("model", wording.model_sentence(tree) if tree.run.get("model") else "")
    page.fact("run", wording.run_sentence(tree.run))


def _reproduce(page: Page, tree: Tree) -> None:
    page.gap()
    if tree.reproduce:
        page.line(("reproduce:", "dim"))
        page.line((tree.reproduce, ""))


def _panels(page: Page, tree: Tree, json_path: str) -> None:
    """The strip and the elements; after a contaminated start only those of the decoding."""
    if tree.reason == CONTAMINATED:
        if tree.decode is not None and tree.decode.verdict is Verdict.DIVERGED:
            _panels(page, tree.decode, json_path)
        return
    row = wording.first_row(tree)
    if row is not None:
        _strip(page, tree, row)
        page.gap()
        _key_line(page, row)
    if tree.elements is not None:
        if row is None or row.key != tree.elements.key:
            page.gap()
            _key_line(page, KeyRow(tree.elements.key, KeyState.DIFFERS, None, None))
        _elements(page, tree.elements, json_path)


def _strip(page: Page, tree: Tree, first: KeyRow) -> None:
    """The fields of the layer that holds the first difference, with the state of each."""
    place = parse_key(first.key)
    if place is None:
        return
    parts: list[Line] = []
    for row in tree.keys:
        key = parse_key(row.key) if row.segment == first.segment else None
        if key is not None and (key.pos, key.layer) == (place.pos, place.layer):
            word, role = _STRIP[row.state]
            parts.append([(f"{key.field} ", ""), (word, role)])
    where = "after the last layer" if place.layer is None else f"layer {place.layer}"
    segment = f" in segment {first.segment}" if first.segment else ""
    page.gap()
    page.text(f"t{place.pos} {where}{segment}")
    page.strip(parts)


def _key_line(page: Page, row: KeyRow) -> None:
    """``t33_l7_attn  f32[4,32]  ref 007d1b69cacb5add  dut 3ce1423530a778c8``."""
    ref, dut = parse_value(row.ref), parse_value(row.dut)
    plain = row.ref and row.dut and ref.type == dut.type and not (ref.nonfinite or dut.nonfinite)
    parts = [row.key, ref.type] if plain and ref.type else [row.key]
    if row.ref or row.dut:
        texts = (ref.digest, dut.digest) if plain else (row.ref or "absent", row.dut or "absent")
        parts += [f"ref {texts[0]}", f"dut {texts[1]}"]
    if INDENT + measure("  ".join(parts)) <= page.width:
        page.line((row.key, "key"), *((f"  {part}", "") for part in parts[1:]))
        return
    page.line((row.key, "key"))
    for part in parts[1:]:
        page.line((part, ""), indent=2 * INDENT)


def _elements(page: Page, elements: Elements, json_path: str) -> None:
    axes = axis_names(elements)
    counted = wording.elements_sentence(elements, leading_axis(elements))
    for text in (counted, wording.histogram_sentence(elements), elements.note):
        if text:
            page.text(text)
    rows = elements.rows[:SHOWN]
    if not rows:
        return
    page.gap()
    heads = [f"[{','.join(axes)}]", "ref hex", "ref value", "dut hex", "dut value", elements.unit]
    table = [heads, *([_index(row), *_cells(row)] for row in rows)]
    widths = [max(measure(line[column]) for line in table) for column in range(len(heads))]
    if INDENT + sum(widths) + sum(map(len, _GAPS)) <= page.width:
        _table(page, table, widths, rows)
    else:
        _facts(page, heads[0], rows, elements.unit)
    _more(page, elements, json_path)


def _table(page: Page, table: list[list[str]], widths: list[int], rows: list[ElementRow]) -> None:
    for number, line in enumerate(table):
        spans: Line = []
        for column, text in enumerate(line):
            spans.append((_GAPS[column] + " " * (widths[column] - measure(text)), ""))
            if number and column in (1, 3):
                spans += _digits(rows[number - 1], dut=column == 3)
            else:
                spans.append((text, "" if number else "dim"))
        page.line(*spans)


def _facts(page: Page, head: str, rows: list[ElementRow], unit: str) -> None:
    """The table for a narrow screen: one fact a line."""
    for row in rows:
        ref_value, dut_value, ulp = _cells(row)[1], _cells(row)[3], _cells(row)[4]
        page.line((f"{head} {_index(row)}", ""))
        page.line(("ref  ", "dim"), *_digits(row, dut=False), (f"  {ref_value}", ""), indent=4)
        page.line(("dut  ", "dim"), *_digits(row, dut=True), (f"  {dut_value}", ""), indent=4)
        page.line((f"{unit}  ", "dim"), (ulp, ""), indent=4)


def _more(page: Page, elements: Elements, json_path: str) -> None:
    left, kept = elements.differ - SHOWN, len(elements.rows) - SHOWN
    if left <= 0:
        return
    where = f"in {json_path}" if json_path else "with --json FILE"
    if kept < left:
        where = f"{max(kept, 0):,} of them {where}"
        page.line((f"{left:,} more, {where}", ""))
    else:
        page.line((f"{left:,} more {where}", ""))


def _digits(row: ElementRow, dut: bool) -> list[wording.Span]:
    """Hex digits, those that changed marked."""
    own, other = (row.dut_hex, row.ref_hex) if dut else (row.ref_hex, row.dut_hex)
    if len(own) != len(other):
        return [(own, "")]
    return [(a, "" if a == b else "digit") for a, b in zip(own, other, strict=True)]


def _cells(row: ElementRow) -> list[str]:
    ulp = "" if row.ulp is None else f"{row.ulp:+,}"
    kind = "" if row.kind == "value" else row.kind
    last = ", ".join(text for text in (ulp, kind) if text)
    return [row.ref_hex, row.ref_value, row.dut_hex, row.dut_value, last]


def _index(row: ElementRow) -> str:
    return f"[{', '.join(map(str, row.index))}]"


def _color_wanted() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _terminal_width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or WIDTH
    except (OSError, ValueError):
        return WIDTH


def _encodes(stream: TextIO, char: str) -> bool:
    try:
        char.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
