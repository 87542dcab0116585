"""Specs of programs for tests: a line of shell, the scripted program, the example, its twins."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
EXAMPLE = f"exec:{sys.executable} {ROOT / 'examples' / 'exec_engine.py'}"


def shell(script: str, limits: str = "") -> str:
    """A program that is one line of shell. ``limits``: ``@timeout=1`` and so on."""
    return f"exec{limits}:sh -c {shlex.quote(script)}"


def scripted(folder: Path, limits: str = "", **rules: Any) -> str:
    """The program of scripted.py; ``set_state`` stands for ``set-state``."""
    path = folder / "rules.json"
    path.write_text(json.dumps({name.replace("_", "-"): told for name, told in rules.items()}))
    return f"exec{limits}:{sys.executable} -S -E {HERE / 'scripted.py'} {path}"


def twin(fault: str) -> str:
    """The example with a fault by name, see twins.py."""
    return f"exec:{sys.executable} {HERE / 'twins.py'} {shlex.quote(fault)}"
