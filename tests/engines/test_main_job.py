"""The main job: every key of four tokens equal, the FFN included, cpu against emu and cuda."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.tree import Tree
from tests.cli_runner import run_cli

KEYS = {"moe-tiny": 184, "moe-48": 2120, "hybrid-64": 3144}


def main_job(tmp_path: Path, dut: str, model: str, seed: int) -> Tree:
    """``parity diff`` with its tree; exit status 0."""
    path = tmp_path / "run.json"
    words = ("--dut", dut, "--model", model, "--n", "4", "--seed", str(seed))
    result = run_cli("diff", *words, "--json", str(path))
    assert result.status == 0, result.stdout + result.stderr
    return Tree.from_json(path.read_text())


def assert_every_key_equal(tree: Tree, model: str) -> None:
    """All keys, both states, the weights, and a control that fired."""
    assert (tree.verdict, tree.level, tree.first) == ("same", "bit", None)
    assert (tree.counts.same, tree.counts.total) == (KEYS[model], KEYS[model])
    assert [state.equal for state in tree.states] == [True, True]
    assert tree.ref["weights"] == tree.dut["weights"]
    assert tree.control is not None
    assert (tree.control.kind, tree.control.fired) == ("inject", True)


@pytest.mark.parametrize("seed", [7, 8])
def test_moe_48_on_cpu_equals_emu(tmp_path: Path, seed: int) -> None:
    assert_every_key_equal(main_job(tmp_path, "emu", "moe-48", seed), "moe-48")


def test_hybrid_64_on_cpu_equals_emu(tmp_path: Path) -> None:
    assert_every_key_equal(main_job(tmp_path, "emu", "hybrid-64", 7), "hybrid-64")


@pytest.mark.parametrize("order", ["shuffled=3", "shuffled=4", "descending", "threads=2"])
def test_the_schedule_changes_nothing(tmp_path: Path, order: str) -> None:
    assert_every_key_equal(main_job(tmp_path, f"emu@{order}", "moe-tiny", 7), "moe-tiny")


@pytest.mark.gpu
@pytest.mark.parametrize("model", KEYS)
@pytest.mark.parametrize("seed", [7, 8])
def test_cpu_equals_cuda(tmp_path: Path, model: str, seed: int) -> None:
    assert_every_key_equal(main_job(tmp_path, "cuda", model, seed), model)


def test_red_another_seed_is_another_model(tmp_path: Path) -> None:
    path = tmp_path / "seed8.dump"
    assert run_cli("dump", "--seed", "8", "-o", str(path)).status == 0
    other = tmp_path / "seed7.dump"
    assert run_cli("dump", "--seed", "7", "-o", str(other)).status == 0
    result = run_cli("compare", str(path), str(other), "-q")
    assert result.status == 1
    assert "t32_l0_nrm" in result.stdout
