"""Faults after a baseline was accepted: ``parity baseline check`` is red, at exactly that key."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.status import Level
from tests.cli.baselines import checked, footprint, save, saved
from tests.cli.running import diff, faulty

FIRST, LAST = "t3_l0_nrm", "t5_logits"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("red") / "store", "x", "cpu", "--tensors", "all")


@pytest.mark.parametrize("key", [FIRST, "t3_l3_x", "t4_l0_ks", "t4_l2_attn", LAST])
def test_one_ulp_in_one_element(store: Path, tmp_path: Path, key: str) -> None:
    """First, last and others: the key, the element, and A as it was (B08 (d))."""
    before = footprint(store)
    status, tree = checked(store, tmp_path, "--engine", faulty("Moved", key=key))
    assert (status, tree.verdict, tree.first) == (1, "diverged", key)
    assert tree.elements is not None
    row = tree.elements.rows[0]
    assert (tree.elements.key, tree.elements.differ, abs(row.ulp or 0)) == (key, 1, 1)
    assert footprint(store) == before


def test_a_variant_is_red_where_diff_is(store: Path, tmp_path: Path) -> None:
    """An op that changed (B08): the same first key and the same count as against the engine."""
    _, wanted = diff(tmp_path, "--ref", "cpu", "--dut", "cpu+two_pass")
    status, tree = checked(store, tmp_path, "--engine", "cpu+two_pass")
    assert (status, tree.verdict, tree.first) == (1, "diverged", wanted.first)
    assert tree.counts == wanted.counts
    assert tree.reason == wanted.reason == "contaminated start"
    assert [state.first for state in tree.states] == [state.first for state in wanted.states]
    assert "variants changed since it was accepted: none, now two_pass" in tree.notes


@pytest.mark.parametrize(
    ("side", "first", "level"),
    [
        (faulty("Silent", key="t4_l1_k"), "t4_l1_k", Level.LOGITS),
        (faulty("Misheard", key="t4_l1_k"), "t4_l1_k", Level.LOGITS),
        (faulty("OwnChoice"), "t2_logits", Level.NONE),
    ],
    ids=["a key is missing", "another digest", "another choice"],
)
def test_what_an_engine_tells(
    store: Path, tmp_path: Path, side: str, first: str, level: Level
) -> None:
    status, tree = checked(store, tmp_path, "--engine", side)
    assert (status, tree.verdict, tree.first) == (1, "diverged", first)
    assert tree.level is level


def test_a_value_that_is_not_finite(store: Path, tmp_path: Path) -> None:
    """From there on nothing is comparable, and what came before is no result (contract 1.10)."""
    status, tree = checked(store, tmp_path, "--engine", faulty("NotFinite", pos=4))
    assert (status, tree.verdict) == (3, "not_run")
    assert tree.reason.startswith("not finite with the same bytes: t4_l1_x")


def test_a_row_of_the_cache_that_no_key_shows(store: Path, tmp_path: Path) -> None:
    status, tree = checked(store, tmp_path, "--engine", faulty("OldRow", steps=6))
    assert (status, tree.verdict, tree.first) == (1, "diverged", None)
    assert tree.reason == "end state differs, first at l3_k row 5 (position 5)"
    assert tree.counts.same == tree.counts.total


def test_an_engine_that_differs_from_itself(store: Path, tmp_path: Path) -> None:
    status, tree = checked(store, tmp_path, "--engine", faulty("Once"))
    assert (status, tree.verdict, tree.first) == (1, "unstable", "t3_l3_x")


def test_a_tap_that_shows_nothing(store: Path, tmp_path: Path) -> None:
    """Every key is equal, and the planted fault is not found: nothing is proved."""
    status, tree = checked(store, tmp_path, "--engine", faulty("DeadTap"))
    assert (status, tree.verdict) == (3, "not_run")
    assert "the control did not fire" in tree.reason


def test_an_engine_without_states_says_so(store: Path, tmp_path: Path) -> None:
    status, tree = checked(store, tmp_path, "--engine", faulty("NoState"))
    assert (status, tree.verdict) == (0, "same")
    assert "states not compared: dut lacks the capability 'state'" in tree.notes


def test_a_value_that_is_not_the_one_hashed(tmp_path: Path) -> None:
    """A kept tensor must be the one behind the digest."""
    side = faulty("Misheard", key="t3_l1_k")
    result = save(tmp_path / "store", "x", side, "--tensors", "t3_l1_k")
    assert result.status == 2
    assert "--tensors t3_l1_k: the value is not the one behind the digest" in result.stderr
    assert not (tmp_path / "store").exists()
