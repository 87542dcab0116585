"""`parity --version` loads no heavy module: a list of names, as a time would depend on load."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "numba", "cupy", "pandas", "rich", "jinja2", "importlib.metadata")


def loaded_modules(root: Path, *arguments: str) -> set[str]:
    """Return the modules that `python -m parity ARGUMENTS`, run on the tree at `root`, imports."""
    command = [sys.executable, "-X", "importtime", "-m", "parity", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    modules = {line.rsplit("|", 1)[1].strip() for line in lines}
    assert "parity" in modules, "the import log does not name parity itself"
    return modules


def heavy(modules: set[str]) -> list[str]:
    """Return the heavy ones among the modules."""
    return [name for name in HEAVY if name in modules]


def test_import_parity_loads_nothing_but_itself() -> None:
    """The public functions come when they are asked for; until then `import parity` is free."""
    code = "import sys, parity; print(*sorted(m for m in sys.modules if m.startswith('parity')))"
    listing = subprocess.run(
        [sys.executable, "-c", f"{code}; parity.record; print('numpy' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert listing.stdout.split() == ["parity", "False"]


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_start_loads_nothing_heavy(option: str) -> None:
    assert heavy(loaded_modules(ROOT, option)) == []


@pytest.mark.parametrize("name", [name for name in HEAVY if name != "cupy"])
def test_red_planted_import(tmp_path: Path, name: str) -> None:
    shutil.copytree(ROOT / "parity", tmp_path / "parity")
    module = tmp_path / "parity" / "__init__.py"
    module.write_text(f"{module.read_text()}\nimport {name}\n")
    assert name in heavy(loaded_modules(tmp_path, "--version"))


def test_red_cupy_needs_no_install_to_be_seen() -> None:
    assert heavy({"parity", "cupy", "cupyx"}) == ["cupy"]
