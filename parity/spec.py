"""What one side of a comparison is, as typed: an engine, a dump file or a program.

``cpu``, ``cuda:exact``, ``emu@shuffled=7``, ``cuda:exact+libm_exp``, ``run.dump``,
``exec:./engine --flag``, ``my_module:MyEngine``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from parity.errors import InputError

_SIGNED = re.compile(r"([+-])([A-Za-z_][A-Za-z0-9_]*)")
FILE_SUFFIXES = (".dump", ".txt")


@dataclass(frozen=True)
class EngineSpec:
    """An engine by installed name or ``module:attr``, with tier, variants and options."""

    text: str
    name: str
    tier: str = "exact"
    plus: frozenset[str] = frozenset()
    minus: frozenset[str] = frozenset()
    options: dict[str, str] = field(default_factory=dict)
    foreign: bool = False


@dataclass(frozen=True)
class FileSpec:
    """A dump that was written before."""

    text: str
    path: Path


@dataclass(frozen=True)
class ProgramSpec:
    """Any program that writes the dump named by PARITY_DUMP."""

    text: str
    command: str


Spec = EngineSpec | FileSpec | ProgramSpec


def parse_spec(text: str, installed: Collection[str]) -> Spec:
    """Read a side; raises InputError when it can be none of the three."""
    if text.startswith("exec:"):
        return _program(text)
    head, *options = text.split("@")
    name, _, rest = head.partition(":")
    if name in installed:
        return _engine(text, name, rest, options)
    path = Path(text)
    if path.exists() or path.suffix in FILE_SUFFIXES or "/" in text:
        return FileSpec(text, path)
    if rest and all(part.isidentifier() for part in name.split(".")):
        attribute, *signed = re.split(r"(?=[+-])", rest)
        return _engine(text, f"{name}:{attribute}", "".join(signed), options, foreign=True)
    listed = ", ".join(installed) or "none"
    raise InputError(
        f"{text!r} is no engine, no dump file and no program",
        f"installed engines: {listed}; a file ends in .dump or .txt; a program is exec:COMMAND",
    )


def _program(text: str) -> ProgramSpec:
    command = text.removeprefix("exec:").strip()
    if not command:
        raise InputError("exec: names no program", "write exec:'./engine --flag'")
    return ProgramSpec(text, command)


def _engine(
    text: str, name: str, rest: str, options: list[str], *, foreign: bool = False
) -> EngineSpec:
    tier = re.match(r"[A-Za-z_0-9]*", rest)
    word = tier.group() if tier else ""
    changes = rest[len(word) :]
    signed = _SIGNED.findall(changes)
    if "".join(sign + variant for sign, variant in signed) != changes:
        raise InputError(f"{text!r}: {changes!r} is not a list of variants", "write +NAME or -NAME")
    pairs = [option.partition("=") for option in options]
    return EngineSpec(
        text=text,
        name=name,
        tier=word or "exact",
        plus=frozenset(variant for sign, variant in signed if sign == "+"),
        minus=frozenset(variant for sign, variant in signed if sign == "-"),
        options={key: value for key, _, value in pairs},
        foreign=foreign,
    )
