"""Lines of text with roles, folded to a width, never cut: what the console report is built from.

Everything is data: a text is written as it is, or with its control characters escaped. Nothing is
read as markup. Without colour the lines are joined here; only colouring needs rich.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from parity.presenting import printable
from parity_reports.wording import Span

Line = list[Span]

INDENT = 2
LABEL = 9  # columns from a label's start to its text: "control" and two spaces
# Role -> rich style. Colour adds nothing that the words do not say.
STYLES = {
    "good": "bold green",
    "bad": "bold red",
    "warn": "bold yellow",
    "key": "bold",
    "diff": "red",
    "odd": "yellow",
    "masked": "blue",
    "dim": "dim",
    "digit": "bold red underline",
}


class Page:
    """Lines of one report. ``width``: columns to fold at; ``dot`` joins the parts of a strip."""

    def __init__(self, width: int, dot: str) -> None:
        self.width = width
        self.dot = dot
        self.lines: list[Line] = []

    def line(self, *spans: Span, indent: int = INDENT) -> None:
        """One line that is never folded: verdict, table row, heading, command."""
        self.lines.append([(" " * indent, ""), *((printable(text), role) for text, role in spans)])

    def gap(self) -> None:
        """An empty line between panels, never two."""
        if self.lines and self.lines[-1]:
            self.lines.append([])

    def text(self, text: str, indent: int = INDENT) -> None:
        """Running text, folded between phrases, a long phrase between words."""
        width = self.width - indent
        self._add(fold(_phrases(text, width), " ", width), " " * indent)

    def fact(self, label: str, text: str, foldable: bool = True) -> None:
        """A labelled fact, folded in its own column as ``text`` is. Nothing without ``text``."""
        if not text:
            return
        column = INDENT + LABEL
        lines: list[Line] = [[(printable(text), "")]]
        if foldable:
            width = self.width - column
            lines = fold(_phrases(text, width), " ", width)
        self.lines.append([(f"{'':{INDENT}}{label:{LABEL}}", "dim"), *lines[0]])
        self._add(lines[1:], " " * column)

    def strip(self, title: str, parts: Iterable[Line]) -> None:
        """``title: part · part``: parts joined by the dot; no part is broken. A title too long to
        stand before the first part has its own line."""
        clean = [[(printable(text), role) for text, role in part] for part in parts]
        width, head = self.width - INDENT, f"{printable(title)}:"
        first = f"{head} " + "".join(text for text, _ in clean[0]) + f" {self.dot}"
        if measure(first) <= width:
            clean[0].insert(0, (f"{head} ", ""))
        else:
            self.line((head, ""))
        self._add(fold(clean, f" {self.dot} ", width), " " * INDENT)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], right: int = 1) -> None:
        """Columns under heads, the last ``right`` of them at the right; where they are too wide
        one row a paragraph: its first column, then one fact a line."""
        shown = [[printable(text) for text in row] for row in (heads, *rows)]
        widths = [max(measure(row[at]) for row in shown) for at in range(len(heads))]
        if INDENT + sum(widths) + 2 * (len(heads) - 1) > self.width:
            self._paragraphs(shown[0], shown[1:])
            return
        for number, row in enumerate(shown):
            texts = []
            for at, text in enumerate(row):
                blanks = " " * (widths[at] - measure(text))
                texts.append(blanks + text if at >= len(heads) - right else text + blanks)
            self.line(("  ".join(texts).rstrip(), "" if number else "dim"))

    def _paragraphs(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        for row in rows:
            self.line((row[0], ""))
            for head, text in zip(heads[1:], row[1:], strict=True):
                self.line((f"{head}  ", "dim"), (text, ""), indent=2 * INDENT)

    def _add(self, lines: list[Line], margin: str) -> None:
        self.lines += [[(margin, ""), *line] for line in lines]


def measure(text: str) -> int:
    """Columns that ``text`` takes in a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fold(parts: Sequence[Line], joint: str, width: int) -> list[Line]:
    """Fill lines of ``width`` columns with parts. A longer part gets a line and runs long."""
    lines: list[Line] = [[]]
    used = 0
    for index, part in enumerate(parts):
        size = sum(measure(text) for text, _ in part)
        # A joint stays at the end of a folded line (" ·"), so it must have room there.
        end = 0 if index == len(parts) - 1 else len(joint.rstrip())
        if lines[-1] and used + len(joint) + size + end > width:
            _close(lines[-1], joint.rstrip())
            lines.append([])
            used = 0
        if lines[-1]:
            lines[-1].append((joint, ""))
            used += len(joint)
        elif not any(text for text, _ in part):
            continue  # a run of blanks does not start a line
        lines[-1] += part
        used += size
    return lines


def _close(line: Line, end: str) -> None:
    while line and not line[-1][0].strip():
        line.pop()
    if end:
        line.append((end, ""))


def paint(lines: Sequence[Line], color: bool) -> str:
    """The lines as text that ends in a newline, with terminal colours where ``color``."""
    if not color:
        return "".join("".join(text for text, _ in line) + "\n" for line in lines)
    import io

    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(
        file=out, force_terminal=True, color_system="standard", no_color=False, legacy_windows=False
    )
    for line in lines:
        pieces = [(text, STYLES.get(role, "")) for text, role in line]
        # soft_wrap: rich neither wraps nor crops; a Text is never parsed as markup.
        console.print(Text.assemble(*pieces), soft_wrap=True, highlight=False, emoji=False)
    return out.getvalue()


def _phrases(text: str, width: int) -> list[Line]:
    """Text in parts that stay whole: phrases that end in punctuation; words where one is longer."""
    parts: list[str] = []
    for phrase in re.split(r"(?<=[,;:]) ", printable(text)):
        parts += [phrase] if measure(phrase) <= width else phrase.split(" ")
    return [[(part, "")] for part in parts]
