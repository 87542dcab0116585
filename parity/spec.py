"""What one side of a comparison is, as typed: an engine, a dump file or a program.

``cpu``, ``cuda:exact``, ``emu@shuffled=7``, ``cuda:exact+libm_exp``, ``cuda+libm_exp``,
``run.dump``, ``exec:./engine --flag``, ``my_module:MyEngine``, ``my_module:MyEngine:fast``.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from parity.errors import InputError
from parity.registry import INSTALL

FILE_SUFFIXES = (".dump", ".txt", ".npz", ".safetensors")
_CHANGES = re.compile(r"(?::([A-Za-z_]\w*))?((?:[+-][A-Za-z_]\w*)*)", re.ASCII)
_FOREIGN = re.compile(r"([A-Za-z_][\w.]*:[A-Za-z_]\w*)(.*)", re.ASCII)


@dataclass(frozen=True)
class EngineSpec:
    """An engine by installed name or ``module:attr``, with tier, variants and options.

    ``tier``: "" for the engine's first one. ``plus`` and ``minus``: variants added to the tier's
    own and taken out of them.
    """

    text: str
    name: str
    tier: str = ""
    plus: frozenset[str] = frozenset()
    minus: frozenset[str] = frozenset()
    options: dict[str, str] = field(default_factory=dict)
    foreign: bool = False


@dataclass(frozen=True)
class FileSpec:
    """A dump that was written before, or a file of tensors."""

    text: str
    path: Path


@dataclass(frozen=True)
class ProgramSpec:
    """Any program that writes the dump named by PARITY_DUMP. ``command``: its words."""

    text: str
    command: tuple[str, ...]


Spec = EngineSpec | FileSpec | ProgramSpec


def parse_spec(text: str, installed: Collection[str]) -> Spec:
    """Read a side; raises InputError when it can be none of the three."""
    if text.startswith("exec:"):
        return _program(text)
    head, *options = text.split("@")
    # A name may hold "-", so the longest reading comes first.
    for marks in (":", ":+", ":+-"):
        name = re.split(f"[{marks}]", head, maxsplit=1)[0]
        if name in installed:
            return _engine(text, name, head[len(name) :], options)
    if os.path.exists(text) or "/" in text or text.endswith(FILE_SUFFIXES):
        return FileSpec(text, Path(text))
    foreign = _FOREIGN.fullmatch(head)
    if foreign is not None:
        return _engine(text, foreign[1], foreign[2], options, foreign=True)
    raise _unknown(text, re.split("[:+@]", text, maxsplit=1)[0], installed)


def _unknown(text: str, name: str, installed: Collection[str]) -> InputError:
    near = difflib.get_close_matches(name, installed, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    listed = f"engines: {', '.join(installed)}" if installed else f"no engine: {INSTALL}"
    return InputError(
        f"{text!r} is no engine, no dump file and no program",
        f"{hint}{listed}; a file ends in .dump or .txt; a program is exec:COMMAND",
    )


def _program(text: str) -> ProgramSpec:
    try:
        command = tuple(shlex.split(text.removeprefix("exec:")))
    except ValueError as error:
        problem = str(error).lower()
        raise InputError(f"{text}: {problem}", "close the quote inside the command") from error
    if not command:
        raise InputError("exec: names no program", "write exec:'./engine --flag'")
    return ProgramSpec(text, command)


def _engine(
    text: str, name: str, rest: str, options: Sequence[str], *, foreign: bool = False
) -> EngineSpec:
    """``rest``: what follows the name, ``:tier+variant-variant``."""
    found = _CHANGES.fullmatch(rest)
    if found is None:
        raise InputError(
            f"{text!r}: {rest!r} is not a tier with variants",
            f"write {name}:TIER+VARIANT or {name}:TIER-VARIANT",
        )
    signed = re.findall(r"([+-])(\w+)", found[2])
    plus = frozenset(variant for sign, variant in signed if sign == "+")
    minus = frozenset(variant for sign, variant in signed if sign == "-")
    both = sorted(plus & minus)
    if both:
        raise InputError(f"{text!r}: {both[0]} is put in and taken out", "name it once")
    return EngineSpec(text, name, found[1] or "", plus, minus, _options(text, options), foreign)


def _options(text: str, parts: Sequence[str]) -> dict[str, str]:
    """``@name=value`` and ``@name``, each name once."""
    options: dict[str, str] = {}
    for part in parts:
        name, _, value = part.partition("=")
        if not name or name in options:
            problem = f"the option {name} stands twice" if name else "an option without a name"
            raise InputError(f"{text!r}: {problem}", "write @NAME=VALUE, each name once")
        options[name] = value
    return options
