"""Markdown as code hosts render it (CommonMark with tables): data stays data.

Running text has a backslash before every sign that means something. What must be copied whole
(keys, hashes, commands) stands in code, where nothing else has a meaning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from parity.presenting import printable
from parity_reports.wording import Span

_SIGNS = re.compile(r"([\\`*_\[\]<>#~$&])")
_KEY = re.compile(r"(\bt\d+_\w+)", re.ASCII)
# What a code host makes more of than Markdown does: people, emoji, numbers of issues.
_MADE_MORE_OF = re.compile(r"@|:[\w+-]+:|#\d")


def prose(text: str) -> str:
    """Running text on one line; as code where the host would turn a part of it into a link."""
    clean = re.sub(" {2,}", " ", printable(text))  # columns that a page does not keep
    if _MADE_MORE_OF.search(clean):
        return code(clean)
    parts = _KEY.split(clean)  # a key in every second place
    return "".join(code(part) if at % 2 else _plain(part) for at, part in enumerate(parts))


def code(text: str) -> str:
    """Text in a code span, for a place outside of tables; nothing for no text."""
    clean = printable(text)
    if not clean:
        return ""
    ticks = "`" * (_longest_run(clean) + 1)
    # One blank at both ends goes away: it parts the ticks from those of the text.
    apart = " " if clean[0] in "` " or clean[-1] in "` " else ""
    return f"{ticks}{apart}{clean}{apart}{ticks}"


def spans(parts: Sequence[Span]) -> str:
    """A sentence: its verdict word bold, its keys in code."""
    made = []
    for text, role in parts:
        if role in ("good", "bad", "warn"):
            made.append(f"**{prose(text)}**")
        else:
            made.append(code(text) if role == "key" else prose(text))
    return "".join(made)


def fence(lines: Sequence[str]) -> list[str]:
    """A block of code, one command or line each."""
    clean = [printable(line) for line in lines]
    ticks = "`" * max(3, _longest_run("\n".join(clean)) + 1)
    return [f"{ticks}text", *clean, ticks]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: int = 0) -> list[str]:
    """A table of cells that are Markdown already, the last ``right`` columns at the right."""
    marks = ["-" * 3] * (len(heads) - right) + ["--:"] * right
    return [_row(heads), _row(marks), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    # A table is cut at its bars before anything else is read, and the backslash that keeps a bar is
    # taken away then, also in code.
    kept = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(kept)} |"


def _plain(text: str) -> str:
    return _SIGNS.sub(r"\\\1", text).replace("|", "&#124;")


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
