"""A real device: orders of torch and cuBLAS at full size, named apart by M, kept and replayed.

Run alone on a machine with a GPU: pytest -m gpu tests/order
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parity.order.record import OrderTable, read_table
from tests.cli_runner import run_cli

pytestmark = pytest.mark.gpu
K = N = 4096
SECONDS = {"f32": 5.0, "bf16": 10.0}  # of the reveal of one M, at most
PROBES = 30_000  # of that of f32


def found(tmp_path: Path, op: str, dtype: str, *words: str) -> OrderTable:
    """The table of a run that has to be green, with its order files in ``tmp_path``."""
    path = tmp_path / "found.json"
    shape = ("--K", str(K), "--N", str(N), "--dtype", dtype, "--device", "cuda")
    files = ("--json", str(path), "--out", str(tmp_path / "kept.order.json"))
    result = run_cli("order", op, *shape, *files, *words)
    assert result.status == 0, result.stdout + result.stderr
    table = read_table(path.read_text(), "found.json")
    assert table is not None
    return table


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("op", ["torch.linear", "cublas.matmul"])
def test_a_product_at_three_batch_sizes(op: str, dtype: str, tmp_path: Path) -> None:
    if op.startswith("torch"):
        pytest.importorskip("torch")
    table = found(tmp_path, op, dtype, "--M", "1,8,64")
    trees = {row.M: row.tree for row in table.rows}
    assert trees[1] != trees[64]
    assert any("M = 1 " in line and "M = 64 " in line for line in table.partings) or trees[8] > 1
    assert {one.outputs for one in table.bits if one.same} <= {1_000_000}
    for row in table.rows:
        reveal = row.stages["reveal"]
        assert reveal.seconds <= SECONDS[dtype]
        assert dtype != "f32" or reveal.probes <= PROBES
        kept = tmp_path / f"kept.m{row.M}.order.json"
        assert run_cli("replay-order", str(kept)).status == 0
        again = run_cli("replay-order", str(kept), "--device", "cuda")
        assert again.status == 0, again.stdout


def test_attention_splits_its_keys_at_batch_1_alone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "found.json"
    shape = ("--K", "1024", "--N", "1024", "--dtype", "bf16", "--device", "cuda", "--M", "1,8,16")
    result = run_cli("order", "torch.attention", *shape, "--json", str(path))
    assert result.status == 0, result.stdout
    table = read_table(path.read_text(), "found.json")
    assert table is not None
    assert [row.tree for row in table.rows] == [1, 2, 2]


def test_a_norm_has_one_order_whatever_the_batch(tmp_path: Path) -> None:
    """At M = 1 each call is one probe: tens of thousands of them."""
    pytest.importorskip("torch")
    result = run_cli("order", "torch.rms_norm", "--K", "1024", "--device", "cuda", "--M", "1,64")
    assert result.status == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", ["by_index_add", "by_scatter_add"])
def test_red_sums_by_atomics_are_refused(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "found.json"
    shape = ("--terms", "values", "--K", "4096", "--M", "64", "--json", str(path))
    result = run_cli("order", f"tests.order.atomic_sums:{name}", *shape)
    table = read_table(path.read_text(), "found.json")
    assert result.status == 1, result.stdout + result.stderr
    assert table is not None
    assert [row.verdict for row in table.rows] == ["no tree"]
    assert re.match(
        "leaf .* meet|the same sum came out unlike|big at leaf|two reveals differ", evidence(table)
    )


def evidence(table: OrderTable) -> str:
    """The first contradiction."""
    return table.rows[0].evidence[0]
