"""A symbol of a user's library, tried in a process of its own: what dies there cannot kill parity.

Run as a file, with nothing but the standard library: ``python symbol_trial.py LIBRARY SYMBOL``.
Before each step it says on stdout what it does, so that the last word tells where it ended.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import sys

# What is said last. A library or a symbol that is not there is for the caller to find out.
LOADING, NO_CODE, ABSENT, DONE = "loading", "no-code", "absent", "done"
HARMLESS = (ABSENT, DONE)
# Bit patterns: 0.5, -1.5, both zeros, subnormals, the ends of the range, infinities, NaNs.
TRIED = (
    *(0x3F000000, 0xBFC00000, 0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000),
    *(0x42C80000, 0xC2C80000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000),
    *(0x7FC00000, 0xFFC00000, 0x7F800001),
)
_MARK = "parity-trial"
_SAID = re.compile(rf"{_MARK} ([\w-]+)")
_MAPPED = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ..(.)")


def last_said(output: bytes) -> str:
    """The last word of a trial; what the library itself prints is passed over."""
    said = _SAID.findall(output.decode("ascii", "replace"))
    return str(said[-1]) if said else LOADING


def holds_code(address: int) -> bool:
    """Whether the memory at ``address`` may be executed; True where the system does not tell."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            ranges = [found.groups() for line in maps if (found := _MAPPED.match(line))]
    except OSError:
        return True
    return any(
        kind == "x" and int(start, 16) <= address < int(stop, 16) for start, stop, kind in ranges
    )


def attempt(file: str, symbol: str) -> str:
    """Load the library and call the symbol for every input of TRIED; the last word."""
    _say(LOADING)
    try:
        function = ctypes.CDLL(file)[symbol]
    except (OSError, AttributeError):
        return ABSENT
    if not holds_code(ctypes.cast(function, ctypes.c_void_p).value or 0):
        return NO_CODE
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float]
    for word in TRIED:
        _say(f"{word:08x}")
        function(ctypes.c_float.from_buffer_copy(struct.pack("=I", word)))
    return DONE


def _say(text: str) -> None:
    # Not through a buffer, which would be lost with the process.
    os.write(1, f"\n{_MARK} {text}\n".encode())


if __name__ == "__main__":
    _say(attempt(*sys.argv[1:]))
