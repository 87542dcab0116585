"""Results of trials by content: what was run names the file, so a change of any part misses."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from parity.builds.cache import cache_folder, write_whole
from parity.builds.provenance import PACKAGES, packages_of
from parity.dumps.writer import format_lines
from parity.errors import InputError
from parity.protocol import Engine
from parity.runs.run import Run, SideRun, State

FORMAT = "parity-trial 2"
Facts = dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """What a run of the dut gave against the ref: where it first differs, or None where it does not
    (then no key, state or weight does), and how many of all keys differ. ``code``: the compiled
    code it ran, as ``parity.builds.provenance.code_text`` tells it."""

    first: str | None
    differ: int
    total: int
    code: str = ""


@dataclass
class TrialCache:
    """Outcomes in ``folder``, one file each; None keeps nothing. ``notes``: what went wrong."""

    folder: Path | None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, *, wanted: bool) -> TrialCache:
        """The user's cache; without it nothing is lost but time."""
        if not wanted:
            return cls(None)
        try:
            return cls(cache_folder("trials"))
        except (InputError, RuntimeError) as error:
            return cls(None, [f"results are not kept: {error}"])

    def get(self, facts: Facts) -> Outcome | None:
        """The outcome of exactly this trial. A file that is damaged is not believed."""
        path = self._path(facts)
        if path is None or not path.exists():
            return None
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
            if body["digest"] != _digest(body["facts"], body["outcome"]):
                raise ValueError("its digest is another")
            if body["facts"] != facts:
                raise ValueError("it tells of another run")
            return Outcome(**body["outcome"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            said = str(error) or type(error).__name__
            self.notes.append(f"a kept result was not used, {path.name}: {said}")
            return None

    def put(self, facts: Facts, outcome: Outcome) -> None:
        """Keep an outcome; whole or not at all."""
        path = self._path(facts)
        if path is None:
            return
        told = asdict(outcome)
        body = {"facts": facts, "outcome": told, "digest": _digest(facts, told)}
        try:
            write_whole(path, json.dumps(body, indent=1).encode())
        except OSError as error:
            self.notes.append(f"results are not kept: {error.strerror}")
            self.folder = None

    def _path(self, facts: Facts) -> Path | None:
        return None if self.folder is None else self.folder / f"{_digest(facts, {})[:32]}.json"


def run_facts(run: Run, ref: SideRun) -> Facts:
    """What a trial is held against: the settings, and the ref's dump and states, byte by byte."""
    states = hashlib.sha256()
    for state in (ref.start, ref.end):
        states.update(_state_digest(state))
    return {
        "format": FORMAT,
        "machine": f"{platform.platform()} {' '.join(platform.libc_ver())}",
        "python": f"{platform.python_version()} NumPy {np.__version__}",
        "fed": ",".join(map(str, ref.fed)),
        "steps": f"{run.n} {run.prefill} {run.tokens_from} {run.dump_prefill}",
        "keys": _text_digest(format_lines(ref.dump, plain=False)),
        "states": states.hexdigest(),
    }


def dut_facts(engine: Engine, tier: str, kept: Iterable[str], options: Mapping[str, str]) -> Facts:
    """What computes: the engine as it describes itself, its variants, and all code it is made of.

    A kernel's digest alone would miss a change in the code that launches it.
    """
    told = {f"dut {name}": value for name, value in engine.describe().items()}
    told["packages"] = told.get(f"dut {PACKAGES}", packages_of(engine))
    return {
        **told,
        "dut": f"{engine.name} {engine.version} {tier}",
        "variants": ",".join(sorted(kept)),
        "settings": ",".join(f"{name}={value}" for name, value in sorted(options.items())),
        "code": code_digest(type(engine)),
    }


@cache
def code_digest(engine: type) -> str:
    """sha256 over every file of the packages that an engine's classes come from."""
    digest = hashlib.sha256()
    for path in code_files(engine):
        content = path.read_bytes()
        digest.update(f"{path} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def code_files(engine: type) -> list[Path]:
    """Every file of these packages, those of parity among them, by package and path."""
    names = {base.__module__.partition(".")[0] for base in engine.__mro__} - {"builtins"}
    return [path for name in sorted({*names, "parity"}) for path in _package_files(name)]


def _package_files(name: str) -> Iterator[Path]:
    source = getattr(sys.modules[name], "__file__", None)
    if source is None:
        return
    path = Path(source)
    if path.name != "__init__.py":
        yield path
        return
    for file in sorted(path.parent.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file


def _state_digest(state: State | None) -> bytes:
    digest = hashlib.sha256()
    for name, array in sorted((state or {}).items()):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


def _text_digest(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _digest(*parts: Mapping[str, object]) -> str:
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
