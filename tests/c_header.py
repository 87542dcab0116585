"""Build C and C++ programs against parity_dump.h, with every compiler that is here."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INCLUDE = ROOT / "parity" / "include"
EXAMPLE = ROOT / "examples" / "c_engine.c"
# -ffp-contract=off: one rounding an operation, which -std=c99 alone does not promise everywhere.
FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZED = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def compilers() -> dict[str, tuple[str, ...]]:
    """Commands by name: gcc and clang where they are installed, zig cc where its wheel is."""
    found = {name: (path,) for name in ("gcc", "clang") if (path := shutil.which(name))}
    if importlib.util.find_spec("ziglang"):
        found["zig"] = (sys.executable, "-m", "ziglang", "cc")
    return found


def cc() -> str:
    """The system's C compiler, else the test is skipped and counted."""
    found = shutil.which("cc")
    if found is None:
        pytest.skip("no C compiler (cc)")
    return found


def build(source: Path, program: Path, *flags: str, base: Sequence[str] = FLAGS) -> Path:
    """Compile and link ``source`` with every warning an error; returns ``program``."""
    words = [cc(), *base, *flags, "-I", str(INCLUDE), str(source), "-o", str(program), "-lm"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program
