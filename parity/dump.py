"""A dump in memory: header, segments, and one entry per key (docs/dump-format.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from parity.errors import InputError
from parity.keys import Key

FORMAT = "parity-dump 1"
MAIN = ""  # name of the segment before any ``# segment NAME`` line
PARTIAL = "partial"  # header of a dump that is not whole, and why

# The header names this format knows, in the order they are written; others follow them.
HEADER_NAMES = (
    *("format", "hash", "engine", "version", "tier", "variants", "family", "model", "source"),
    *("stored", "weights", "tokens", "tokenizer", "prefill", "device", "driver", "compiler"),
    *("options", "kernels"),
    *("compiled", "mask", "packages", "greedy", "stopped", PARTIAL),
)
HEADER_NAME = re.compile(r"[a-z][a-z0-9_.\-]*")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # no header value and no segment's name holds one
_SIZE = "(?:0|[1-9][0-9]{0,17})"
_TYPE = re.compile(rf"([a-z][a-z0-9_]*)\[({_SIZE}(?:,{_SIZE})*|)\]")
_NONFINITE = re.compile(rf"([1-9][0-9]{{0,17}})@({_SIZE})")


@dataclass(frozen=True, slots=True)
class TensorType:
    """dtype (``f32``, ``int8``, ``int32``, ``bf16``, ``f16``, ...) and shape of a value."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @classmethod
    def parse(cls, text: str) -> TensorType:
        """Read ``dtype[a,b]``; raises InputError for any other text."""
        found = _TYPE.fullmatch(text)
        if found is None:
            raise InputError(
                f"type {text!r} is not dtype[shape]", "write it as f32[4,32], without spaces"
            )
        return cls(found[1], tuple(int(part) for part in found[2].split(",") if part))


def parse_nonfinite(text: str) -> tuple[int, int]:
    """Read ``n@i`` as (count, flat index of the first); raises InputError for any other text."""
    found = _NONFINITE.fullmatch(text)
    if found is None:
        raise InputError(f"nonfinite {text!r} is not count@index", "write it as nonfinite=3@17")
    return int(found[1]), int(found[2])


@dataclass(frozen=True, slots=True)
class Entry:
    """One dump line. ``type`` is None where it was not recorded (two-column dumps).

    ``nonfinite`` is (count, flat index of the first) of NaN and infinities, or None when none.
    """

    key: Key
    digest: int
    type: TensorType | None = None
    nonfinite: tuple[int, int] | None = None

    def value_text(self) -> str:
        """Everything of the line but the tag: ``<hash16> [type] [nonfinite=n@i]``."""
        parts = [f"{self.digest:016x}"]
        if self.type is not None:
            parts.append(str(self.type))
        if self.nonfinite is not None:
            parts.append(nonfinite_text(self.nonfinite))
        return " ".join(parts)


def nonfinite_text(found: tuple[int, int]) -> str:
    """``nonfinite=n@i``: how many elements are not finite, and the flat index of the first."""
    return f"nonfinite={found[0]}@{found[1]}"


@dataclass
class Dump:
    """Header values by name, and entries by segment, each in file order. ``source`` names it.

    A segment is a list or, where it was read from a file, a ``parity.dumps.table.Table``.
    """

    header: dict[str, str] = field(default_factory=dict)
    segments: Mapping[str, Sequence[Entry]] = field(default_factory=dict)
    source: str = ""

    @property
    def entries(self) -> Sequence[Entry]:
        """Entries of all segments, in file order: the segment itself where there is one; of more
        than one all are made."""
        if len(self.segments) == 1:
            return next(iter(self.segments.values()))
        return [entry for segment in self.segments.values() for entry in segment]

    @property
    def size(self) -> int:
        """How many entries there are."""
        return sum(map(len, self.segments.values()))

    @property
    def hash_name(self) -> str:
        """Name of the hash (``fnv1a64`` unless the header says otherwise)."""
        return self.header.get("hash", "fnv1a64").split(" ")[0]
