"""The console report: the verdict, labelled facts, one strip, four elements, the line to rerun.

One screen for people; plain text in a pipe. Keys, hashes, values and commands are never cut: what
is wider than the screen runs long. Every fact comes from the tree.
"""

from __future__ import annotations

import os
from typing import TextIO

from parity.presenting import Options, require_consistent, write_text
from parity.status import Verdict
from parity.tree import CONTAMINATED, Birth, KeyRow, Tree
from parity_reports import isolating, why, wording
from parity_reports.console_elements import show_elements
from parity_reports.layout import INDENT, Line, Page, measure, paint
from parity_reports.states import look
from parity_reports.values import parse_key, parse_value

ROWS = 12  # rows of one table
WIDTH = 80  # columns where the stream is no terminal, or does not know its width
NARROWEST = 20
GROUPS = 4  # groups of births, flips and functions that are named; the HTML report names more


class ConsoleReport:
    """Presenter ``console``."""

    name = "console"

    def write(self, tree: Tree, stream: TextIO, options: Options) -> None:
        """Write the report as ``stream`` can show it: its width, colours and characters."""
        terminal = stream.isatty()
        color = terminal and color_wanted() if options.color is None else options.color
        width = options.width or (terminal_width(stream) if terminal else WIDTH)
        text = self.render(
            tree,
            width=width,
            color=color,
            quiet=options.quiet,
            json_path=options.json_path,
            dot="·" if encodes(stream, "·") else "|",
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
        _tables(page, tree)
    else:
        _red_facts(page, tree)
        if tree.isolation is None:
            _panels(page, tree, json_path)
        else:
            _tables(page, tree)
        _reproduce(page, tree)
    page.fact("time", why.time_sentence(tree))
    for note in (*tree.notes, *isolating.notes(tree)):
        page.fact("note", note)
    if not page.lines[-1]:  # nothing followed the verdict
        page.lines.pop()


def _green_facts(page: Page, tree: Tree) -> None:
    _sides(page, tree)
    _run(page, tree)
    page.fact("states", wording.states_sentence(tree.states))
    page.fact("level", f"{tree.level} (asked for: {tree.level_asked})")
    _tried(page, tree)
    _checks(page, tree)


def _red_facts(page: Page, tree: Tree) -> None:
    not_run = tree.verdict is Verdict.NOT_RUN
    for number, step in enumerate(wording.reason_lines(tree)[1:] if not_run else []):
        page.fact("" if number else "next", step, foldable=False)
    guilty = isolating.guilty_sentence(tree)
    page.fact("cause", guilty)
    if tree.reason == CONTAMINATED:
        _start(page, tree)
    else:
        _cause(page, wording.compared(tree)[0], "op" if guilty else "cause")
        if not all(state.equal for state in tree.states):
            page.fact("states", wording.states_sentence(tree.states))
    page.fact("keys", wording.compared_sentence(tree))
    if not not_run:
        _level(page, tree)
    page.fact("stable", wording.stability_sentence(tree))
    _tried(page, tree)
    _checks(page, tree)
    _sides(page, tree)


def _start(page: Page, tree: Tree) -> None:
    """How the start states differ, why, and what decoding from one state gives."""
    start = next((state for state in tree.states if state.when == "start"), None)
    page.fact("start", "" if start is None else wording.parts_sentence(start))
    news = why.news(tree)
    if news == why.ALL:
        _cause(page, tree, "cause")
    else:
        page.fact("births", news)
    if tree.decode is not None:
        page.fact("decode", wording.decode_sentence(tree.decode))
        for label, text in _cause_facts(tree.decode, "cause"):
            page.fact("", f"{label}: {text}" if label else text)
        for number, text in enumerate(_flip_texts(tree.decode)):
            page.fact("", text if number else f"greedy: {text}")


def _cause(page: Page, tree: Tree, label: str) -> None:
    """The op behind the first key, what of it differs, and every op that gives birth."""
    for fact in _cause_facts(tree, label):
        page.fact(*fact)


def _cause_facts(tree: Tree, label: str) -> list[tuple[str, str]]:
    facts = []
    birth = why.leading_birth(tree)
    if birth is not None:
        facts.append((label, why.cause_sentence(tree)))
        if tree.isolation is None:
            facts.append(("", _ran(birth)))
    elif tree.reason != CONTAMINATED:  # there the first key is a false lead
        facts.append(("op", why.op_sentence(tree)))
    if tree.births is not None and not why.only_birth(tree):
        for number, text in enumerate(why.births_sentences(tree.births, GROUPS)):
            facts.append(("" if number else "births", text))
    return [fact for fact in facts if fact[1]]


def _ran(birth: Birth) -> str:
    functions = [why.function_sentence(function) for function in birth.functions[:GROUPS]]
    last = (why.explained_sentence(birth), why.kernels_sentence(birth))
    return "; ".join(text for text in (*functions, *last) if text)


def _level(page: Page, tree: Tree) -> None:
    """The level reached, and the greedy choices: on the same line where none is another one."""
    level = f"{tree.level} (asked for: {tree.level_asked})"
    if tree.greedy and not wording.flips(tree):
        level += f"; {wording.greedy_sentence(tree)}"
    page.fact("level", level)
    _flips(page, tree)


def _flips(page: Page, tree: Tree) -> None:
    """Positions with another token, and what is known of the margin there."""
    for number, text in enumerate(_flip_texts(tree)):
        page.fact("" if number else "greedy", text)


def _flip_texts(tree: Tree) -> list[str]:
    if not wording.flips(tree):
        return []
    return [wording.greedy_sentence(tree), *why.margins_sentences(tree.margins, GROUPS)]


def _checks(page: Page, tree: Tree) -> None:
    if tree.control is not None:
        page.fact("control", wording.control_sentence(tree.control))
    if tree.search is not None:
        page.fact("search", wording.search_sentence(tree.search))


def _sides(page: Page, tree: Tree) -> None:
    sides = wording.sides(tree)
    specs = {name: header.get("spec", "") for name, header in sides.items()}
    column = max(measure(spec) for spec in specs.values()) + 4
    for name, header in sides.items():
        spec, facts = specs[name], wording.side_facts(header)
        gap = " " * (column - measure(spec)) if spec and facts else ""
        page.fact(name, f"{spec}{gap}{facts}")


def _run(page: Page, tree: Tree) -> None:
    page.fact("model", wording.model_sentence(tree) if tree.run.get("model") else "")
    page.fact("run", wording.run_sentence(tree.run))


def _tried(page: Page, tree: Tree) -> None:
    """How many runs isolation took, and which variants act on each other."""
    if tree.isolation is not None:
        page.fact("tried", isolating.runs_sentence(tree.isolation))
        for text in tree.isolation.interactions:
            page.fact("", text)


def _tables(page: Page, tree: Tree) -> None:
    """What was tried, a table a kind, in that order; placements that change nothing in one line."""
    for table in isolating.tables(tree):
        rows, equal = table.split() if table.name == isolating.PLACEMENT else (table.rows, "")
        page.gap()
        if not rows:
            page.fact(table.heads[0], equal)
            continue
        page.table(table.heads, rows[:ROWS])
        if len(rows) > ROWS:
            page.text(f"{len(rows) - ROWS:,} more in the JSON and HTML reports")
        if equal:
            page.text(equal)


def _reproduce(page: Page, tree: Tree) -> None:
    page.gap()
    if tree.reproduce:
        page.line(("reproduce:", "dim"))
        page.line((tree.reproduce, ""))
    if tree.repro:
        page.line((wording.repro_sentence(tree), ""))


def _panels(page: Page, whole: Tree, json_path: str) -> None:
    """The strip and the elements: after a contaminated start those of the decoding, unless a birth
    in the prompt is known; of a side that is not repeatable those of its runs."""
    tree, names = wording.compared(whole)
    if tree.reason == CONTAMINATED and why.news(tree) != why.ALL:
        if tree.decode is not None and tree.decode.verdict is Verdict.DIVERGED:
            _panels(page, tree.decode, json_path)
        return
    birth = why.leading_birth(tree) if tree.reason == CONTAMINATED else None
    row = wording.first_row(tree)
    if birth is not None and birth.key != tree.first:
        page.gap()
        _key_line(page, KeyRow(birth.key, birth.state, birth.ref, birth.dut), names)
        if birth.elements is not None:
            show_elements(page, birth.elements, json_path)
        return
    if row is not None:
        page.gap()
        _strip(page, tree, row)
        _key_line(page, row, names)
    if tree.elements is not None:
        if row is None or row.key != tree.elements.key:
            page.gap()
            page.line((tree.elements.key, "key"))
        show_elements(page, tree.elements, json_path)


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


def color_wanted() -> bool:
    """Whether the environment leaves colours on."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width(stream: TextIO) -> int:
    """Columns of the terminal behind ``stream``; WIDTH where it does not tell."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or WIDTH
    except (OSError, ValueError):
        return WIDTH


def encodes(stream: TextIO, char: str) -> bool:
    """Whether the encoding of ``stream`` has the character."""
    try:
        char.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
