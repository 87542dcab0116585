"""On a device: the engine repeats itself, a float atomic does not, and a repro is replayed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parity.tree import Tree
from tests.cli_runner import run_cli

pytestmark = pytest.mark.gpu

RACES = "tests.red.races"
FAULTS = "tests.red.repro_faults"


def run(tmp_path: Path, *words: str) -> tuple[int, Tree]:
    """Status and tree of a command."""
    path = tmp_path / "run.json"
    result = run_cli(*words, "--json", str(path))
    assert path.exists(), result.stderr
    return result.status, Tree.from_json(path.read_text())


@pytest.mark.parametrize("tier", ["exact", "fast"])
@pytest.mark.parametrize("model", ["moe-tiny", "moe-48", "hybrid-64"])
def test_device_repeats(tmp_path: Path, model: str, tier: str) -> None:
    words = ("stable", "--engine", f"cuda:{tier}", "--model", model, "--n", "20")
    status, tree = run(tmp_path, *words)
    assert (status, tree.verdict, tree.first) == (0, "same", None)
    assert tree.stability is not None
    assert (tree.stability.runs, tree.stability.key) == (20, "")
    assert tree.control is not None
    assert tree.control.fired
    print(f"\n{model} {tier}: 20 runs, {tree.counts.total:,} keys each, {tree.seconds:.2f} s")


@pytest.mark.parametrize("model", ["moe-tiny", "moe-48"])
def test_float_atomic_is_unstable(tmp_path: Path, model: str) -> None:
    """Blocks add in no order: some sum is rounded in another way in one of 20 runs."""
    engine = f"{RACES}:CudaRace@kernel=atomic_matvec"
    status, tree = run(tmp_path, "stable", "--engine", engine, "--model", model, "--n", "20")
    assert (status, tree.verdict) == (1, "unstable")
    assert tree.stability is not None
    assert 2 <= tree.stability.run <= 20
    assert re.match(r"l\d+_|t\d+_", tree.stability.key), tree.stability.key
    print(f"\n{model}: {tree.reason}; {tree.notes}")


@pytest.mark.parametrize("options", [(), ("--prefill", "ref")], ids=["own", "ref"])
def test_diff_calls_a_float_atomic_unstable(tmp_path: Path, options: tuple[str, ...]) -> None:
    engine = f"{RACES}:CudaRace@kernel=atomic_matvec"
    status, tree = run(tmp_path, "diff", "--ref", "cpu", "--dut", engine, *options)
    assert (status, tree.verdict) == (1, "unstable")
    assert tree.stability is not None
    assert tree.stability.side == "dut"


@pytest.mark.parametrize("fault", ["residual", "headnorm_descending", "router_descending"])
def test_repro_of_a_changed_kernel(tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "repro"
    words = ("--prefill", "ref", "--fields", "+ffn", "--n", "1", "--repro", str(folder))
    dut = f"{FAULTS}:CudaPatched@fault={fault}"
    status, red = run(tmp_path, "diff", "--ref", "cpu", "--dut", dut, *words)
    assert (status, red.verdict, red.repro) == (1, "diverged", str(folder))
    status, tree = run(tmp_path, "replay", str(folder))
    assert (status, tree.first) == (1, red.first)
    assert tree.elements == red.elements
    assert tree.notes[-1].startswith("ref as recorded, dut as recorded, differ in ")
    print(f"\n{fault}: replayed in {tree.seconds:.2f} s, the engines' loads left out")
    assert run(tmp_path, "replay", str(folder), "--dut", "cuda")[0] == 0
