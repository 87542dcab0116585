"""The lines of one reply, taken as they come: a line that cannot stand there ends the waiting."""

from __future__ import annotations

import re
from typing import NoReturn

from parity.errors import InputError

CHECK = "the protocol is docs/exec.md; logs belong on stderr"
_SHOWN = 48  # characters of a line that messages show


class Reply:
    """What a program answers to ``request``. ``begins``: how its data lines begin.

    ``lines``: the data lines so far. ``complete``: the last line, ``ok`` or ``error``, is there.
    ``error``: the text after ``error``, or None. ``source`` names the program in messages.
    """

    def __init__(self, source: str, request: str, begins: str) -> None:
        self.source, self.request = source, request
        self.lines: list[str] = []
        self.complete = False
        self.error: str | None = None
        self._begins = re.compile(begins)
        self._rest = bytearray()  # of a line that is not whole
        self._looked = 0  # bytes of it without a line end

    def feed(self, data: bytes) -> None:
        """Take more bytes; raises InputError for a line that is none of this reply's."""
        self._rest += data
        while (at := self._rest.find(b"\n", self._looked)) >= 0:
            line = bytes(self._rest[:at])
            del self._rest[: at + 1]
            self._looked = 0
            self._add(line)
        self._looked = len(self._rest)
        if self.complete and self._rest:
            self.refuse("it goes on after its last line", self._rest.decode(errors="replace"))

    def _add(self, raw: bytes) -> None:
        line = raw.decode(errors="replace")
        if self.complete:
            self.refuse("it goes on after its last line", line)
        elif line == "ok":
            self.complete = True
        elif line.startswith("error "):
            self.complete, self.error = True, line.removeprefix("error ")
        elif self._begins.match(line):
            self.lines.append(line)
        else:
            self.refuse("it does not belong here", line)

    def refuse(self, what: str, line: str | None = None) -> NoReturn:
        """Raise InputError for ``line``, the one after those taken, or for the whole reply."""
        where = "" if line is None else f", line {len(self.lines) + 1}"
        self._raise(where, what, line)

    def refuse_line(self, number: int, what: str) -> NoReturn:
        """Raise InputError for data line ``number``, from 0."""
        self._raise(f", line {number + 1}", what, self.lines[number])

    def _raise(self, where: str, what: str, line: str | None) -> NoReturn:
        text = "" if line is None else f": {cut(line)!r}"
        raise InputError(f"{self.source}: {self.asked}{where}: {what}{text}", CHECK)

    @property
    def error_text(self) -> str:
        """What the program said with ``error``, as messages show it."""
        return f"error {cut(self.error or '')}"

    @property
    def asked(self) -> str:
        """The request as messages name it."""
        return f"reply to {cut(self.request)!r}"


def cut(text: str) -> str:
    """``text`` as messages show it."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
