"""The texts of a tree's key rows, taken apart: value columns and the address of a key."""

from __future__ import annotations

from dataclasses import dataclass

from parity.errors import InputError
from parity.keys import Key


@dataclass(frozen=True)
class Value:
    """One side of a key row. Empty where the side or that part of it was not recorded."""

    digest: str = ""
    dtype: str = ""
    shape: str = ""  # as written, "[4,32]"
    nonfinite: str = ""  # count@flat index of the first

    @property
    def type(self) -> str:
        """``f32[4,32]``."""
        return self.dtype + self.shape


def parse_value(text: str | None) -> Value:
    """Take ``<hash16> [dtype[shape]] [nonfinite=n@i]`` apart; None is a side without the key."""
    if text is None:
        return Value()
    digest, *parts = text.split(" ")
    dtype = shape = nonfinite = ""
    for part in parts:
        if part.startswith("nonfinite="):
            nonfinite = part.removeprefix("nonfinite=")
        else:
            dtype, bracket, rest = part.partition("[")
            shape = bracket + rest
    return Value(digest, dtype, shape, nonfinite)


def parse_key(tag: str) -> Key | None:
    """The address behind ``tag``, or None for a name that is no key (files of tensors)."""
    try:
        return Key.parse(tag)
    except InputError:
        return None
