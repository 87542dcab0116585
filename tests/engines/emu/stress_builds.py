"""Modules for the stress tests, built once for each content, and runs under a sanitizer, once."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from parity_cuda.emu import EmuModule, build_module, sanitizer_env
from parity_cuda.emu.compiler import Compiler
from tests.engines.emu.stress_child import Results

CHILD = Path(__file__).parent / "stress_child.py"


@dataclass(frozen=True)
class Builds:
    """``kept``: outlives the session, its names are digests of contents. ``session``: shared by
    the workers of one session."""

    kept: Path
    session: Path

    @cached_property
    def _loaded(self) -> dict[str, EmuModule]:
        return {}

    def load(self, sources: Mapping[str, str], compiler: Compiler | None = None) -> EmuModule:
        """The module of these texts, as the engine builds it."""
        key = f"{_digest(sources)} {compiler}"
        if key not in self._loaded:
            with self._building("fast"):
                built = build_module(sources, compiler=compiler)
            self._loaded[key] = EmuModule(built)
        return self._loaded[key]

    def sanitized(self, mode: str, sources: Mapping[str, str], groups: list[str]) -> Results:
        """What ``stress_child.py`` says of these groups."""
        name = f"{mode}-{_digest(sources)}"
        results = self.session / f"{name}.json"
        with self._building(mode):
            if not results.exists():
                texts = self.session / f"{name}-sources.json"
                texts.write_text(json.dumps(dict(sources)))
                results.write_text(_run(mode, texts, groups))
        found: Results = json.loads(results.read_text())
        return found

    @contextmanager
    def _building(self, what: str) -> Iterator[None]:
        """One worker at a time, in the folder that is kept."""
        with (self.session / f"{what}.lock").open("w") as lock, pytest.MonkeyPatch.context() as env:
            fcntl.flock(lock, fcntl.LOCK_EX)
            env.setenv("PARITY_CACHE", str(self.kept))
            yield


def _digest(sources: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(sources), sort_keys=True).encode()).hexdigest()[:16]


def _run(mode: str, texts: Path, groups: list[str]) -> str:
    env = {**os.environ, **sanitizer_env(mode), "PYTHONPATH": os.pathsep.join(sys.path)}
    env["OPENBLAS_NUM_THREADS"] = "1"  # TSan ends a process that forks with threads
    command = [sys.executable, str(CHILD), mode, str(texts), *groups]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
