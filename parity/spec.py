"""What one side of a comparison is, as typed: an engine, a dump file or a program.

``cpu``, ``cuda:exact``, ``emu@shuffled=7``, ``cuda:exact+libm_exp``, ``cuda+libm_exp``,
``hf:FOLDER,dtype=bf16``, ``run.dump``, ``exec:./engine --flag``, ``exec@timeout=60:./engine``,
``my_module:MyEngine``, ``my_module:MyEngine:fast``.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parity.errors import InputError
from parity.registry import ENGINES, INSTALL, plugins
from parity.variants import TIERS

TENSOR_SUFFIXES = (".npz", ".safetensors")
FILE_SUFFIXES = (".dump", ".txt", *TENSOR_SUFFIXES)
_CHANGES = re.compile(r"(?::([A-Za-z_]\w*))?((?:[+-][A-Za-z_]\w*)*)", re.ASCII)
_FOREIGN = re.compile(r"([A-Za-z_][\w.]*:[A-Za-z_]\w*)(.*)", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_BYTES = re.compile(r"([1-9][0-9]{0,11})([KMGT]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class EngineSpec:
    """An engine by installed name or ``module:attr``, with tier, variants and options.

    ``tier``: "" for the engine's first one. ``plus`` and ``minus``: variants added to the tier's
    own and taken out of them. ``given``: the class, or the engine itself, that a caller in Python
    has at hand; else None. ``model``: the model that the side names, of an engine that opens
    models by itself (``NAME:MODEL,option=value``); "" for the run's.
    """

    text: str
    name: str
    tier: str = ""
    plus: frozenset[str] = frozenset()
    minus: frozenset[str] = frozenset()
    options: dict[str, str] = field(default_factory=dict)
    foreign: bool = False
    given: Any = None
    model: str = ""


@dataclass(frozen=True)
class FileSpec:
    """A dump that was written before, or a file of tensors."""

    text: str
    path: Path


@dataclass(frozen=True)
class ProgramSpec:
    """Any program that writes a dump or answers requests (docs/exec.md). ``command``: its words.

    ``timeout``: seconds a run or a request may take. ``output``: bytes it may write meanwhile.
    """

    text: str
    command: tuple[str, ...]
    timeout: float = 600.0
    output: int = 1 << 30


Spec = EngineSpec | FileSpec | ProgramSpec
Runnable = EngineSpec | ProgramSpec  # what can be fed token by token


def parse_spec(text: str, installed: Collection[str]) -> Spec:
    """Read a side; raises InputError when it can be none of the three."""
    if text.startswith(("exec:", "exec@")):
        return _program(text)
    head, *options = text.split("@")
    # A name may hold "-", so the longest reading comes first.
    for marks in (":", ":+", ":+-"):
        name = re.split(f"[{marks}]", head, maxsplit=1)[0]
        if name in installed and head.startswith(f"{name}:") and _opens_models(name, head):
            return _with_model(text, name)
        if name in installed:
            return _engine(text, name, head[len(name) :], options)
    if os.path.exists(text) or "/" in text or text.endswith(FILE_SUFFIXES):
        return FileSpec(text, Path(text))
    foreign = _FOREIGN.fullmatch(head)
    if foreign is not None:
        return _engine(text, foreign[1], foreign[2], options, foreign=True)
    raise _unknown(text, re.split("[:+@]", text, maxsplit=1)[0], installed)


def runnable(text: str, option: str) -> Runnable:
    """The engine or program of an option; InputError for a file, which cannot run."""
    spec = parse_spec(text, plugins(ENGINES))
    if isinstance(spec, FileSpec):
        raise InputError(f"{option} {text}: not an engine", "parity engines lists them")
    return spec


def _unknown(text: str, name: str, installed: Collection[str]) -> InputError:
    near = difflib.get_close_matches(name, installed, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    listed = f"engines: {', '.join(installed)}" if installed else f"no engine: {INSTALL}"
    return InputError(
        f"{text!r} is no engine, no dump file and no program",
        f"{hint}{listed}; a file ends in .dump or .txt; a program is exec:COMMAND",
    )


def _opens_models(name: str, head: str) -> bool:
    """Whether what follows ``name:`` is a model: so it is with an engine that opens models. A tier
    of the contract's is one with every engine, and none is loaded for it."""
    if re.split("[:+-]", head)[1] in TIERS:
        return False
    plugin = plugins(ENGINES).get(name)
    return plugin is not None and hasattr(plugin.load(), "open_model")


def _with_model(text: str, name: str) -> EngineSpec:
    """``NAME:MODEL,option=value``; a folder's name may hold "@" and ","."""
    model, *options = re.split(r"[,@](?=[A-Za-z_]+=)", text.partition(":")[2])
    if not model:
        raise InputError(f"{text!r} names no model", f"write {name}:FOLDER or {name}:PRESET")
    return EngineSpec(text, name, options=_options(text, options), model=model)


def _program(text: str) -> ProgramSpec:
    head, _, typed = text.partition(":")
    limits = _options(text, head.split("@")[1:])
    unknown = sorted(limits.keys() - {"timeout", "output"})
    if unknown:
        raise InputError(
            f"{text!r}: exec has no option @{unknown[0]}", "options: @timeout, @output"
        )
    try:
        command = tuple(shlex.split(typed))
    except ValueError as error:
        problem = str(error).lower()
        raise InputError(f"{text}: {problem}", "close the quote inside the command") from error
    if not command:
        raise InputError(f"{text.strip()} names no program", "write exec:'./engine --flag'")
    timeout = _seconds(text, limits.get("timeout", "600"))
    return ProgramSpec(text, command, timeout, _bytes(text, limits.get("output", "1G")))


def _seconds(text: str, value: str) -> float:
    seconds = float(value) if _SECONDS.fullmatch(value) else 0.0
    if seconds <= 0:
        raise InputError(f"{text!r}: {value!r} is no time in seconds", "write exec@timeout=60:...")
    return seconds


def _bytes(text: str, value: str) -> int:
    found = _BYTES.fullmatch(value)
    if found is None:
        raise InputError(f"{text!r}: {value!r} is no number of bytes", "write exec@output=64M:...")
    return int(found[1]) * _UNITS[found[2]]


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
