"""Progress on stderr: one rewritten line, gone at the end; and notes that stay.

dut cuda  t34  1,413 of 2,120 keys   about 2 s left
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, TextIO

from parity.presenting import printable, write_text

INTERVAL = 0.1  # seconds between two drawings: enough to look alive, too few to cost time
DEFAULT_WIDTH = 80


class Notes(Protocol):
    """Where a long step says what it does. ``Progress`` is one."""

    def note(self, text: str) -> None:
        """Show one line that stays."""


class Progress:
    """The progress line of one command, drawn only where ``stream`` (stderr) is a terminal.

    ``clock`` gives seconds. Use it as a context manager, or call ``close``: stdout and stderr are
    often the same terminal, so the line must be gone before a report is written.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # stderr is None where whoever started the process closed it.
        found: TextIO | None = sys.stderr if stream is None else stream
        self._quiet = quiet or found is None
        self._stream: TextIO = io.StringIO() if found is None else found
        self._draws = not self._quiet and self._stream.isatty()
        self._clock = clock
        self._shown = 0  # columns of the line that stands there now
        self._drawn_at = float("-inf")
        self._began: dict[str, tuple[float, int]] = {}  # side: time and keys done, first update
        self._done: dict[str, int] = {}  # side: keys done, latest update

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def update(self, side: str, where: str, done: int, total: int, unit: str = "keys") -> None:
        """Say how far ``side`` (``dut cuda``) is: ``where`` (``t34``) and keys done of total."""
        if not self._draws:
            return
        now = self._clock()
        if done < self._done.get(side, done + 1):  # the side starts, or starts again
            self._began[side] = (now, done)
        self._done[side] = done
        if now - self._drawn_at < INTERVAL:
            return
        self._drawn_at = now
        began, done_then = self._began[side]
        rate = (done - done_then) / (now - began) if now > began else 0.0
        self._draw(f"{side}  {where}  {done:,} of {total:,} {unit}", _left(total - done, rate))

    def note(self, text: str) -> None:
        """Print one line that stays, in a terminal or not, unless quiet."""
        if self._quiet:
            return
        self.close()
        self._put(f"{printable(text)}\n")

    def close(self) -> None:
        """Wipe the line. A later update draws it again."""
        if self._shown:
            self._put(f"\r{' ' * self._shown}\r")
            self._shown = 0
            self._drawn_at = float("-inf")

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or DEFAULT_WIDTH
        except (OSError, ValueError):
            return DEFAULT_WIDTH

    def _draw(self, head: str, left: str) -> None:
        room = self._columns() - 1  # a full last column would scroll
        line = printable(head) + left
        if len(line) > room:
            line = printable(head)[:room]
        rest = " " * (self._shown - len(line))
        self._put(f"\r{line}{rest}")
        self._shown = len(line)

    def _put(self, text: str) -> None:
        try:
            write_text(self._stream, text)
            self._stream.flush()
        except (OSError, ValueError):
            # Progress is worth no failed run: with stderr gone, go on in silence.
            self._quiet, self._draws, self._shown = True, False, 0


def _left(keys: int, rate: float) -> str:
    """The estimate at ``rate`` keys/s; nothing before there is a rate and at the end."""
    if rate <= 0 or keys <= 0:
        return ""
    seconds = keys / rate
    if seconds >= 90:
        return f"   about {seconds / 60:,.0f} min left"
    return f"   about {max(1, round(seconds))} s left"
