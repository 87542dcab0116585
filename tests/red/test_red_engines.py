"""Faults planted in engines: each is found at the exact key, with exit status 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parity.keys import Key
from parity.tree import Tree
from tests.cli_runner import run_cli

FAULTS = "tests.red.faults"


def diff(tmp_path: Path, dut: str, *options: str) -> tuple[int, Tree]:
    """Run ``parity diff`` and read its tree back."""
    path = tmp_path / "run.json"
    result = run_cli("diff", "--ref", "cpu", "--dut", dut, "--json", str(path), *options)
    assert path.exists(), result.stderr
    return result.status, Tree.from_json(path.read_text())


def test_clean_pair_is_same(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "cpu")
    assert (status, tree.verdict, tree.first) == (0, "same", None)
    assert (tree.counts.same, tree.counts.total) == (184, 184)
    assert tree.control is not None
    assert tree.control.fired
    assert tree.control.kind == "inject"


def test_flipped_weight_bit_is_found_at_the_key_it_feeds(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, f"{FAULTS}:FlippedWeight", "--prefill", "ref")
    assert (status, tree.first) == (1, "t32_l2_qrope")
    assert "weights differ in 1 tensor, first layers.2.q_proj.qs" in tree.notes
    assert tree.elements is not None
    assert tree.elements.differ > 0
    assert [row.key for row in tree.inputs] == ["t32_l2_nrm"]
    assert {row.state for row in tree.inputs} == {"same"}


def test_flipped_weight_bit_contaminates_the_start(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, f"{FAULTS}:FlippedWeight")
    assert (status, tree.reason) == (1, "contaminated start")
    # A query cannot matter at position 0, where it sees one key: position 1 is the first.
    assert tree.states[0].first == "l3_ks row 1 (position 1)"
    assert tree.decode is not None
    assert tree.decode.first == "t32_l2_qrope"


def test_unused_weight_shows_in_the_digest_alone(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, f"{FAULTS}:UnusedWeight")
    assert (status, tree.verdict, tree.first) == (1, "diverged", None)
    assert tree.reason == "weights differ in 1 tensor, first embed.qs"
    assert tree.counts.same == tree.counts.total == 184


@pytest.mark.parametrize(
    ("fault", "key"),
    [
        ("rmsnorm_product", "t32_l0_nrm"),
        ("unpaired", "t32_l0_kraw"),
        ("headnorm_descending", "t32_l0_knorm"),
        ("contracted", "t32_l0_kraw"),
        ("wrong_position", "t32_l0_k"),
        ("visible_length", "t32_l0_attn"),
        ("residual", "t32_l0_ores"),
        ("router_descending", "t32_l0_rlogits"),
        ("scale_order", "t32_l0_gate"),
        ("rank_order", "t32_l0_x"),
    ],
)
def test_changed_kernel_is_found_at_the_key_it_makes(tmp_path: Path, fault: str, key: str) -> None:
    dut = f"{FAULTS}:Patched@fault={fault}"
    status, tree = diff(tmp_path, dut, "--prefill", "ref", "--fields", "+ffn", "--n", "1")
    assert (status, tree.verdict, tree.first) == (1, "diverged", key)
    assert {row.state for row in tree.inputs} <= {"same"}


@pytest.mark.parametrize("pos", [32, 34, 35])
@pytest.mark.parametrize("where", ["l0_nrm", "l0_ks", "l1_k", "l2_attn", "l3_x", "logits"])
def test_moved_element_is_found_at_its_key(tmp_path: Path, pos: int, where: str) -> None:
    key = f"t{pos}_{where}"
    status, tree = diff(tmp_path, f"{FAULTS}:Moved@key={key}")
    assert (status, tree.verdict, tree.first) == (1, "diverged", key)
    assert tree.elements is not None
    assert tree.elements.differ == 1
    assert tree.elements.max_ulp == 1
    before = [row for row in tree.keys if row.state == "same"]
    assert len(before) >= (pos - 32) * 46


@pytest.mark.parametrize("key", ["t32_l0_nrm", "t33_l2_v", "t35_logits", "t34_l3_x"])
def test_bisection_names_the_same_key(tmp_path: Path, key: str) -> None:
    status, tree = diff(tmp_path, f"{FAULTS}:Moved@key={key}", "--bisect")
    assert (status, tree.first) == (1, key)
    assert tree.search is not None
    assert tree.search.layer == key.rsplit("_", 1)[0]
    assert (tree.search.digests_total, tree.search.runs) == (40, 4)
    assert tree.search.digests_read <= 12  # 2 * (ceil(log2(20)) + 1)


def test_side_that_differs_from_itself_is_unstable(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, f"{FAULTS}:Shaky")
    assert (status, tree.verdict) == (1, "unstable")
    assert "dut differs from itself" in tree.reason


def test_stale_row_is_a_contaminated_start(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, f"{FAULTS}:LostRow")
    assert (status, tree.reason) == (1, "contaminated start")
    assert tree.states[0].first == "l1_k row 5 (position 5)"
    assert tree.decode is not None
    assert tree.decode.verdict == "same"
    assert Key.parse(tree.first or "").pos >= 32


def test_changed_end_state_alone_is_a_divergence(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, f"{FAULTS}:LateRow")
    assert (status, tree.verdict, tree.first) == (1, "diverged", None)
    assert tree.reason == "end state differs, first at l3_v row 2 (position 2)"


def test_tree_is_json_of_one_version(tmp_path: Path) -> None:
    diff(tmp_path, "cpu")
    body = json.loads((tmp_path / "run.json").read_text())
    assert (body["format"], body["version"]) == ("parity-divergence", 4)
