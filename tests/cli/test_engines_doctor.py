"""parity engines and parity doctor: what is installed, what this machine can run and why not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from parity.cli import doctor
from parity.cli.commands import cli
from parity.errors import NotRunError
from parity.registry import ENGINES, engine_class, plugins
from parity_cpu.engine import Engine
from tests.cli.running import said
from tests.cli_runner import run_cli

RUN = "diff, dump, isodiff, rollback, ladder"


def findings(*words: str) -> dict[str, dict[str, object]]:
    """The findings of ``parity doctor --json -`` by name."""
    result = run_cli("doctor", "--json", "-", *words)
    assert (result.status, result.stderr) == (0, "")
    body = json.loads(result.stdout)
    assert (body["format"], body["version"]) == ("parity-doctor", 1)
    return {finding["name"]: finding for finding in body["findings"]}


def test_engines_are_listed_with_what_they_offer() -> None:
    result = run_cli("engines")
    assert (result.status, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    for name in ("cpu", "cuda", "emu"):
        at = lines.index(f"{name:<6}  parity-harness {Engine.version}")
        assert lines[at + 1].startswith("        tiers         exact")
        assert lines[at + 2].startswith("        variants      ")
        block = " ".join(line.strip() for line in lines[at + 2 : at + 8])
        assert ", ".join(Engine.variants) in block
        assert f"capabilities  {', '.join(sorted(engine_class(name).capabilities))}" in block
        assert max(map(len, lines)) <= 80


def test_engines_as_json(tmp_path: Path) -> None:
    path = tmp_path / "engines.json"
    assert said(run_cli("engines", "--json", str(path))) == (0, "", "")
    body = json.loads(path.read_text())
    assert (body["format"], body["version"]) == ("parity-engines", 1)
    cpu = next(row for row in body["engines"] if row["name"] == "cpu")
    assert cpu["capabilities"] == sorted(Engine.capabilities)
    assert cpu["tiers"] == list(Engine.tiers)
    assert run_cli("engines", "--json", "-").stdout == path.read_text()


def test_listing_opens_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "__init__", None)  # would fail if it were called
    assert run_cli("engines").status == 0


def test_doctor_says_what_can_run_and_what_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    result = run_cli("doctor")
    assert (result.status, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("cpu     yes  ")
    at = lines.index("cuda    no   CuPy is not installed")
    assert lines[at + 1].startswith("             next: pip install -e '.[cuda13]'")
    assert "floats  yes  no flush-to-zero, division and root correctly rounded" in lines
    assert lines[-2].startswith(f"can run: {RUN} with cpu")
    assert lines[-1].startswith("cannot:  anything with cuda")


def test_doctor_survives_an_engine_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, settings: object) -> None:
        raise ZeroDivisionError("engine fault\nand more")

    monkeypatch.setattr(Engine, "__init__", broken)
    found = findings()
    assert found["cpu"] == {
        "name": "cpu",
        "ok": False,
        "text": "ZeroDivisionError: engine fault",
        "next_step": "parity diff --dut cpu",
    }
    assert found["floats"]["ok"] is True
    assert run_cli("doctor").stdout.splitlines()[-1].startswith("cannot:  anything with cpu")


def test_doctor_repeats_the_reason_of_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(self: object, settings: object) -> None:
        raise NotRunError("cpu: no threads", "wait for better times")

    monkeypatch.setattr(Engine, "__init__", absent)
    lines = run_cli("doctor").stdout.splitlines()
    assert lines[:2] == ["cpu     no   no threads", f"{'':12} next: wait for better times"]


def test_doctor_without_any_engine_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "plugins", lambda group: {})
    assert run_cli("doctor").stdout.splitlines()[-1] == f"can run: {RUN} with no engine"


@pytest.mark.parametrize(
    ("free", "ok", "text", "next_step"),
    [
        (64 << 30, True, "17.2 GB a side, 34.4 GB for ref and dut; 68.7 GB free", ""),
        (
            32 << 30,
            False,
            "34.4 GB for ref and dut; 34.4 GB free",
            "--model moe-tiny needs 1.4 MB",
        ),
        (None, True, "34.4 GB for ref and dut; free memory is not known here", ""),
    ],
)
def test_memory_that_a_model_needs(
    monkeypatch: pytest.MonkeyPatch, free: int | None, ok: bool, text: str, next_step: str
) -> None:
    monkeypatch.setattr(doctor, "free_bytes", lambda: free)
    found = findings("--model", "qwen3-30b-a3b")["memory"]
    assert found["ok"] is ok
    assert str(found["text"]).startswith("qwen3-30b-a3b needs 17.2 GB a side")
    assert text in str(found["text"])
    assert str(found["next_step"]).startswith(next_step)


def test_free_memory_is_known_here_and_is_sane() -> None:
    free = doctor.free_bytes()
    assert free is not None
    assert 1 << 20 < free < 1 << 50


def test_red_arithmetic_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    true_root = np.sqrt
    monkeypatch.setattr(np, "sqrt", lambda x: np.nextafter(true_root(x), np.float32(9)))
    found = findings()["floats"]
    assert (found["ok"], found["text"]) == (False, "division or root is not rounded right")
    monkeypatch.undo()

    class Flushed(np.ndarray):
        """An array whose sums are flushed to zero."""

        def __add__(self, other: object) -> np.ndarray:
            return np.zeros(self.shape, np.float32)

    array = np.array
    monkeypatch.setattr(np, "array", lambda *given: array(*given).view(Flushed))
    found = findings()["floats"]
    assert (found["ok"], found["text"]) == (False, "subnormals are flushed to zero")
    assert found["next_step"] == "unload libraries built with -ffast-math"


def test_every_installed_engine_is_in_both_lists() -> None:
    names = set(plugins(ENGINES))
    assert names <= set(findings())
    body = json.loads(run_cli("engines", "--json", "-").stdout)
    assert names == {row["name"] for row in body["engines"]}


def test_commands_named_by_the_doctor_exist() -> None:
    assert set(doctor.COMMANDS) <= set(cli.commands)


def test_doctor_says_that_two_sides_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "free_bytes", lambda: 32 << 30)
    lines = run_cli("doctor", "--model", "qwen3-30b-a3b").stdout.splitlines()
    assert lines[-1] == "cannot:  two sides of qwen3-30b-a3b in this memory"
    assert "cannot:  two sides" not in run_cli("doctor").stdout
