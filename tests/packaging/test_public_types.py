"""Type checkers see the types of the public functions, though `import parity` loads none."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
ROOT = Path(__file__).parents[2]
USE = """
import numpy
import parity

found = parity.diff("cpu", "emu", n=2, prefill="ref")
reveal_type(found)
reveal_type(found.first)
reveal_type(found.to_frame())
reveal_type(parity.isodiff("cpu", m=(2, 4), rb=True))
reveal_type(parity.compare({"x": numpy.ones(2)}, "b.npz"))
with parity.record("a.txt", engine="mine") as tap:
    reveal_type(tap)
    tap(0, None, "logits", numpy.ones(2))
"""
WRONG = {
    'parity.diff("cpu", "emu", prefil="ref")': 'Unexpected keyword argument "prefil"',
    'parity.diff("cpu", "emu", level="bits")': '"level" to "diff" has incompatible type',
    'parity.diff("cpu").frist': '"Divergence" has no attribute "frist"',
}


def checked(folder: Path, source: str) -> str:
    """What mypy says of a module."""
    (folder / "use.py").write_text(source)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*command, str(folder / "use.py")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_the_types_are_seen(tmp_path: Path) -> None:
    said = checked(tmp_path, USE)
    shown = [line.split("Revealed type is ")[1] for line in said.splitlines() if "Revealed" in line]
    assert [name.strip('"').rsplit(".")[-1] for name in shown] == [
        *("Divergence", "str | None", "DataFrame", "ProbeResult", "Divergence", "Recorder")
    ]
    assert "error" not in said


def test_red_wrong_calls_are_seen(tmp_path: Path) -> None:
    said = checked(tmp_path, "import parity\n" + "".join(f"{call}\n" for call in WRONG))
    errors = [line for line in said.splitlines() if ": error: " in line]
    assert len(errors) == len(WRONG), said
    for line, wanted in zip(errors, WRONG.values(), strict=True):
        assert wanted in line
