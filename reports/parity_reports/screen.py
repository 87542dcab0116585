"""What a stream can show: how many columns and lines, colours, and the dot.

``COLUMNS`` and ``LINES`` of the environment come first, where they are set to a number; then what a
terminal tells; then 80 columns and 30 lines, which a pipe gets too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TextIO

from parity.presenting import Options

WIDTH, HEIGHT = 80, 30
NARROWEST = 20


@dataclass(frozen=True)
class Screen:
    """``width``: columns to fold at; ``height``: lines that are seen at once; ``dot`` joins."""

    width: int = WIDTH
    height: int = HEIGHT
    color: bool = False
    dot: str = "·"


def screen_of(stream: TextIO, options: Options) -> Screen:
    """What ``stream`` can show, and what of it was chosen by ``options``."""
    terminal = stream.isatty()
    width, height = _size(stream) if terminal else (WIDTH, HEIGHT)
    return Screen(
        width=max(options.width or _number("COLUMNS") or width, NARROWEST),
        height=_number("LINES") or height,
        color=terminal and _color_wanted() if options.color is None else options.color,
        dot="·" if _encodes(stream, "·") else "|",
    )


def _size(stream: TextIO) -> tuple[int, int]:
    """Columns and lines of the terminal, one line less for the prompt; what it does not tell is
    taken as in a pipe."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return WIDTH, HEIGHT
    return columns or WIDTH, lines - 1 if lines > 1 else HEIGHT


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0


def _color_wanted() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _encodes(stream: TextIO, char: str) -> bool:
    try:
        char.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
