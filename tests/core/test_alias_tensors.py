"""Fused and split tensors are compared by their bytes, along the axis on which the shapes fit."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.comparison.alias_tensors import FLAT, axis_of, cut, put_together
from parity.tree import KeyState, Tree
from tests.cli_runner import Result, run_cli

Q, K, V = (
    np.arange(size, dtype=np.float32).reshape(2, -1) + start
    for size, start in ((8, 100), (4, 200), (4, 300))
)


def compared(
    folder: Path, ref: dict[str, np.ndarray], dut: dict[str, np.ndarray], text: str
) -> Result:
    """``parity compare --alias`` of two .npz files, with the tree in ``tree.json``."""
    for name, tensors in (("ref", ref), ("dut", dut)):
        np.savez(folder / f"{name}.npz", **tensors)
    (folder / "names").write_text(text)
    sides = str(folder / "ref.npz"), str(folder / "dut.npz")
    words = ("--alias", str(folder / "names"), "--json", str(folder / "tree.json"))
    return run_cli("compare", *sides, *words)


def tree_of(folder: Path) -> Tree:
    return Tree.from_json((folder / "tree.json").read_text())


def keyed(**tensors: np.ndarray) -> dict[str, np.ndarray]:
    """The tensors at two positions, the second with other values."""
    return {f"t{pos}_l0_{name}": x + pos for pos in (0, 1) for name, x in tensors.items()}


FUSED = {
    "last axis": (np.concatenate([Q, K, V], 1), "along axis 1"),
    "flat": (np.concatenate([x.reshape(-1) for x in (Q, K, V)]), "in flat order"),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_tensor_is_compared_part_by_part(tmp_path: Path, name: str) -> None:
    whole, how = FUSED[name]
    ref = keyed(nrm=Q, q=Q, k=K, v=V, x=V)
    dut = keyed(nrm=Q, qkv=whole, x=V)
    result = compared(tmp_path, ref, dut, "qkv = q + k + v")
    assert (result.status, result.stderr) == (0, "")
    tree = tree_of(tmp_path)
    assert (tree.counts.same, tree.counts.total) == (10, 10)
    assert f"alias line 1: qkv = q + k + v: 2 keys of the dut compared as 6, {how}" in tree.notes
    assert [row.key for row in tree.keys[:5]] == [f"t0_l0_{n}" for n in ("nrm", "q", "k", "v", "x")]


@pytest.mark.parametrize("name", FUSED)
def test_red_one_bit_in_a_fused_tensor_is_found_at_its_part(tmp_path: Path, name: str) -> None:
    whole, _ = FUSED[name]
    ref, dut = keyed(q=Q, k=K, v=V), keyed(qkv=whole)
    flat = dut["t1_l0_qkv"].reshape(-1)
    at = 8 + 4 + 1 if name == "flat" else 15  # v[0, 1] by elements, v[1, 1] by rows
    flat[at : at + 1].view(np.uint32)[0] ^= 1
    assert compared(tmp_path, ref, dut, "qkv = q + k + v").status == 1
    tree = tree_of(tmp_path)
    assert (tree.first, tree.counts.differ, tree.counts.same) == ("t1_l0_v", 1, 5)
    assert tree.elements is not None
    assert (tree.elements.differ, tree.elements.rows[0].index) == (
        1,
        (0 if name == "flat" else 1, 1),
    )


def test_red_parts_in_another_order_differ(tmp_path: Path) -> None:
    dut = keyed(qkv=np.concatenate([Q, V, K], 1))
    assert compared(tmp_path, keyed(q=Q, k=K, v=V), dut, "qkv = q + k + v").status == 1
    assert tree_of(tmp_path).first == "t0_l0_k"


def test_red_another_dtype_of_the_whole_differs(tmp_path: Path) -> None:
    dut = keyed(qkv=np.concatenate([Q, K, V], 1).astype(np.float64))
    assert compared(tmp_path, keyed(q=Q, k=K, v=V), dut, "qkv = q + k + v").status == 1
    assert tree_of(tmp_path).counts.differ == 6


def test_split_tensors_are_put_together(tmp_path: Path) -> None:
    ref = keyed(kv=np.concatenate([K, V], 0))
    assert compared(tmp_path, ref, keyed(k=K, v=V), "k + v = kv").status == 0
    tree = tree_of(tmp_path)
    assert (tree.counts.same, tree.counts.ref, tree.counts.dut) == (2, 2, 2)
    note = "alias line 1: k + v = kv: 4 keys of the dut compared as 2, along axis 0"
    assert note in tree.notes
    changed = keyed(k=K, v=V)
    changed["t0_l0_v"][1, 0] += 1
    assert compared(tmp_path, ref, changed, "k + v = kv").status == 1
    tree = tree_of(tmp_path)
    assert (tree.first, tree.elements and tree.elements.rows[0].index) == ("t0_l0_kv", (3, 0))


def test_split_tensors_in_flat_order(tmp_path: Path) -> None:
    ref = keyed(kv=np.concatenate([K.reshape(-1), V.reshape(-1)]))
    assert compared(tmp_path, ref, keyed(k=K, v=V), "k + v = kv").status == 0
    assert "in flat order" in tree_of(tmp_path).notes[0]


@pytest.mark.parametrize(
    ("ref", "dut", "text"),
    [
        (keyed(x=Q, q=Q, k=K), keyed(x=Q, qk=Q), "qk = q + k"),
        (keyed(x=Q, kv=Q), keyed(x=Q, k=K, v=Q), "k + v = kv"),
        (
            keyed(x=Q, kv=np.concatenate([K, V])),
            keyed(x=Q, k=K, v=V.astype(np.float64)),
            "k + v = kv",
        ),
    ],
    ids=["too few elements", "too many elements", "two dtypes"],
)
def test_what_does_not_fit_is_not_comparable_and_not_green(
    tmp_path: Path, ref: dict[str, np.ndarray], dut: dict[str, np.ndarray], text: str
) -> None:
    result = compared(tmp_path, ref, dut, text)
    assert (result.status, result.stderr) == (3, "")
    tree = tree_of(tmp_path)
    assert (tree.counts.same, tree.counts.not_comparable, tree.counts.total) == (2, 6, 8)
    assert f"alias line 1: {text}: 6 keys not comparable: no shape fits" in tree.notes
    assert {row.state for row in tree.keys} == {KeyState.SAME, KeyState.NOT_COMPARABLE}


def test_renamed_tensors_show_their_elements(tmp_path: Path) -> None:
    dut = {"model.0.out": Q.copy(), "model.10.out": K}
    dut["model.0.out"][1, 2] += 1
    ref = {"h.0.attn": Q, "h.10.attn": K}
    assert compared(tmp_path, ref, dut, "model.*.out = h.*.attn").status == 1
    tree = tree_of(tmp_path)
    assert tree.first == "h.0.attn"
    assert tree.elements is not None
    assert tree.elements.rows[0].index == (1, 2)


def test_a_dump_on_one_side_is_compared_by_digest(tmp_path: Path) -> None:
    """Only one side has values: nothing can be cut, and that is said."""
    ref = tmp_path / "ref.dump"
    ref.write_text("t0_x 0123456789abcdef\nt0_q 0123456789abcdef\nt0_k 0123456789abcdef\n")
    np.savez(tmp_path / "dut.npz", t0_qk=Q, t0_x=K)
    (tmp_path / "names").write_text("qk = q + k\n")
    sides = str(ref), str(tmp_path / "dut.npz")
    result = run_cli("compare", *sides, "--alias", str(tmp_path / "names"), "--json", "-")
    tree = Tree.from_json(result.stdout)
    assert (tree.first, tree.counts.not_comparable, tree.counts.differ) == ("t0_x", 3, 1)
    assert result.status == 1


# --- shapes


@pytest.mark.parametrize(
    ("whole", "parts", "axis"),
    [
        ((4, 6), [(4, 2), (4, 4)], 1),
        ((6, 4), [(2, 4), (4, 4)], 0),
        ((6,), [(2,), (4,)], 0),
        ((2, 3, 4), [(2, 1, 4), (2, 2, 4)], 1),
        ((8,), [(2, 2), (4,)], FLAT),
        ((2, 4), [(2, 2), (4, 1)], FLAT),
        ((), [(1,)], FLAT),
        ((4, 6), [(4, 2), (4, 3)], None),
        ((4, 6), [(3, 2), (3, 4)], None),
    ],
)
def test_the_axis_on_which_the_shapes_fit(
    whole: tuple[int, ...], parts: list[tuple[int, ...]], axis: int | None
) -> None:
    assert axis_of(whole, parts) == axis


SHAPES = st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple)


@given(SHAPES, st.integers(0, 2), st.lists(st.integers(1, 3), min_size=2, max_size=4))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_cutting_undoes_putting_together(
    shape: tuple[int, ...], axis: int, sizes: list[int]
) -> None:
    axis %= len(shape)
    shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
    parts = [
        np.arange(prod(s), dtype=np.int32).reshape(s) + 100 * at for at, s in enumerate(shapes)
    ]
    whole = np.concatenate(parts, axis)
    assert axis_of(whole.shape, shapes) == axis
    for along in (axis, FLAT):
        joined = put_together(parts, whole.shape, along)
        assert joined.shape == whole.shape
        again = cut(joined, shapes, along)
        assert all(np.array_equal(*pair) for pair in zip(again, parts, strict=True))
    assert np.array_equal(put_together(parts, whole.shape, axis), whole)
