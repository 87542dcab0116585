"""Two sides that do not start from one state: said first, and decoding is not blamed for it.

Kestrel's trap: a prefill that ran with another norm or another expf leaves other K scales, and a
comparison of the decode steps alone then names ``t32_l0_ks`` or the attention, a false lead.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.keys import Key
from parity.tree import CONTAMINATED, Tree
from tests.cli_runner import run_cli

FAULTS = "tests.red.start_faults"
SHORT = ("--n", "2")
STEP_KEYS = {"moe-tiny": 4 * 11 + 2, "hybrid-tiny": 6 * 13 + 2 * 10 + 2}


def diff(tmp_path: Path, dut: str, *options: str) -> tuple[int, Tree, str]:
    """Status, tree and console text of ``parity diff`` against the cpu engine."""
    path = tmp_path / "run.json"
    words = ("diff", "--ref", "cpu", "--dut", f"{FAULTS}:{dut}", *SHORT, *options)
    result = run_cli(*words, "--json", str(path))
    assert path.exists(), result.stderr
    return result.status, Tree.from_json(path.read_text()), result.stdout


def check_decode_is_same(tree: Tree, model: str) -> None:
    """Decoding from the ref's state gives every key, and nothing in the tree blames it."""
    assert tree.decode is not None
    assert (tree.decode.verdict, tree.decode.first) == ("same", None)
    assert (tree.decode.counts.same, tree.decode.counts.total) == (2 * STEP_KEYS[model],) * 2
    assert tree.decode.run["prefill"] == "ref"
    assert (tree.elements, tree.inputs, tree.decode.births) == (None, [], None)
    births = [] if tree.births is None else tree.births.found
    assert [birth.key for birth in births if Key.parse(birth.key).pos >= 32] == []


@pytest.mark.parametrize(
    ("trap", "first"),
    [
        ("rsqrt@begin=3", "l0_ks row 3 (position 3)"),
        ("fma@begin=30", "l0_ks row 30 (position 30)"),
        ("div_by_inverse", "l2_ks row 2 (position 2)"),
        ("libm_exp", "l1_ks row 21 (position 21)"),
        ("libm_sincos", "l3_ks row 13 (position 13)"),
    ],
)
def test_prefill_with_a_variant_on_does_not_blame_decode(
    tmp_path: Path, trap: str, first: str
) -> None:
    status, tree, text = diff(tmp_path, f"Trap@variant={trap}")
    assert (status, tree.verdict, tree.reason) == (1, "diverged", CONTAMINATED)
    assert tree.states[0].first == first
    assert text.startswith(f"DIVERGED  contaminated start, first at {first}\n")
    assert "Decoding is not to blame" in text
    check_decode_is_same(tree, "moe-tiny")
    # The false lead: what the decode steps alone would have named.
    assert tree.first is not None
    assert Key.parse(tree.first).field == "attn"
    assert tree.first not in text.splitlines()[0]


def test_the_same_trap_on_the_emulated_kernels(tmp_path: Path) -> None:
    status, tree, _ = diff(tmp_path, "EmuTrap@variant=rsqrt", "--n", "2", "--tokens", "1,2,3,4,5")
    assert (status, tree.reason) == (1, CONTAMINATED)
    assert (tree.states[0].first or "").endswith("row 0 (position 0)")
    check_decode_is_same(tree, "moe-tiny")


@pytest.mark.parametrize(
    ("dut", "first"),
    [
        ("Trap@variant=rsqrt", "l0_s row 0"),
        ("MovedPart@part=l2_hist", "l2_hist row 2"),
        ("MovedPart@part=l3_k", "l3_k row 31 (position 31)"),
    ],
)
def test_recurrent_state_counts_too(tmp_path: Path, dut: str, first: str) -> None:
    status, tree, text = diff(tmp_path, dut, "--model", "hybrid-tiny")
    assert (status, tree.reason, tree.states[0].first) == (1, CONTAMINATED, first)
    assert text.startswith(f"DIVERGED  contaminated start, first at {first}\n")
    check_decode_is_same(tree, "hybrid-tiny")


@pytest.mark.parametrize(
    ("part", "first"),
    [
        ("l0_k", "l0_k row 31 (position 31)"),
        ("l1_ks", "l1_ks row 31 (position 31)"),
        ("l2_v", "l2_v row 31 (position 31)"),
        ("l3_vs", "l3_vs row 31 (position 31)"),
    ],
)
def test_every_part_of_the_cache_counts(tmp_path: Path, part: str, first: str) -> None:
    status, tree, _ = diff(tmp_path, f"MovedPart@part={part}")
    assert (status, tree.reason, tree.states[0].first) == (1, CONTAMINATED, first)
    assert sum(found.differ for found in tree.states[0].parts) == 1
    check_decode_is_same(tree, "moe-tiny")


@pytest.mark.parametrize("at", [17, 31])
def test_another_token_in_the_prompt(tmp_path: Path, at: int) -> None:
    status, tree, _ = diff(tmp_path, f"OtherToken@begin={at}")
    assert (status, tree.reason) == (1, CONTAMINATED)
    assert tree.states[0].first == f"l0_k row {at} (position {at})"
    check_decode_is_same(tree, "moe-tiny")


def test_a_token_that_was_lost(tmp_path: Path) -> None:
    status, tree, text = diff(tmp_path, "LostToken")
    assert (status, tree.reason, tree.states[0].first) == (1, CONTAMINATED, "lengths")
    assert text.startswith("DIVERGED  contaminated start, first at lengths\n")
    notes = {part.name: part.note for part in tree.states[0].parts if part.note}
    assert notes["l0_k"] == "ref 32 rows, dut 31"
    check_decode_is_same(tree, "moe-tiny")


@pytest.mark.parametrize("options", [(), ("--dump-prefill",), ("--bisect",)], ids=" ".join)
def test_prefill_that_hangs_on_its_chunks_repeats(tmp_path: Path, options: tuple[str, ...]) -> None:
    """It breaks a promise, and is no less repeatable for it: not unstable."""
    status, tree, _ = diff(tmp_path, "WideTrap@variant=rsqrt", *options)
    assert (status, tree.verdict, tree.reason) == (1, "diverged", CONTAMINATED)
    assert tree.states[0].first == "l0_ks row 0 (position 0)"
    assert tree.decode is not None
    assert tree.decode.verdict == "same"


def test_a_part_that_one_side_lacks(tmp_path: Path) -> None:
    status, tree, _ = diff(tmp_path, "NoHist", "--model", "hybrid-tiny")
    assert (status, tree.reason, tree.states[0].first) == (1, CONTAMINATED, "l0_hist row 0")


@pytest.mark.parametrize("options", [(), ("--dump-prefill",), ("--bisect",)], ids=" ".join)
def test_a_part_of_another_shape_is_not_handed_over(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    status, tree, _ = diff(tmp_path, "OtherShape", *options)
    assert (status, tree.reason, tree.states[0].first) == (
        1,
        CONTAMINATED,
        "l0_k row 0 (position 0)",
    )
    assert tree.decode is None
    text = "decoding from the ref's state was not tried: "
    told = next(note for note in tree.notes if note.startswith(text))
    assert "l0_k: ref int8[32, " in told


@pytest.mark.parametrize("options", [(), ("--bisect",)], ids=" ".join)
def test_a_state_of_another_shape_cannot_be_asked_for(options: tuple[str, ...]) -> None:
    words = ("diff", "--ref", "cpu", "--dut", f"{FAULTS}:OtherShape", *SHORT, "--prefill", "ref")
    result = run_cli(*words, *options)
    assert result.status == 3
    assert "OtherShape cannot take over the ref's state: l0_k: ref int8[32, " in result.stderr
    assert "next: use --prefill own" in result.stderr


def test_decode_that_is_wrong_too_is_named_as_such(tmp_path: Path) -> None:
    """From the ref's state the decode steps show their own fault, at its own key."""
    dut = "TrapAndFault@variant=rsqrt@key=t33_l1_attn"
    status, tree, text = diff(tmp_path, dut)
    assert (status, tree.reason) == (1, CONTAMINATED)
    assert tree.decode is not None
    assert (tree.decode.verdict, tree.decode.first) == ("diverged", "t33_l1_attn")
    assert tree.decode.elements is not None
    assert (tree.decode.elements.differ, tree.decode.elements.max_ulp) == (1, 1)
    assert "from the ref's state: diverged, first at t33_l1_attn" in text


def test_nothing_is_contaminated_when_the_ref_prefills(tmp_path: Path) -> None:
    status, tree, _ = diff(tmp_path, "Trap@variant=rsqrt", "--prefill", "ref")
    assert (status, tree.verdict, tree.decode) == (0, "same", None)
    assert [state.equal for state in tree.states] == [True, True]


def test_bisection_says_the_same(tmp_path: Path) -> None:
    status, tree, text = diff(tmp_path, "Trap@variant=rsqrt@begin=3", "--bisect")
    assert (status, tree.reason) == (1, CONTAMINATED)
    assert text.startswith("DIVERGED  contaminated start, first at l0_ks row 3 (position 3)\n")
    assert tree.decode is not None
    assert tree.decode.verdict == "same"
