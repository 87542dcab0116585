"""Greedy choices are compared by position alone, and keys only while both are fed the same.

The misreading to avoid: a "flip" at token 58 that was token 21's value read at the wrong place.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.cli.options import make_run
from parity.comparison.compare import compare_dumps
from parity.comparison.parting import label_parting, parting
from parity.dump import MAIN, Dump, Entry
from parity.dumps.greedy import format_greedy, match_greedy
from parity.keys import Key
from parity.progress import Progress
from parity.runs.run import run_side
from parity.runs.sides import open_side
from parity.spec import EngineSpec, parse_spec
from parity.status import Level, Verdict
from parity.tree import KeyState, Tree
from tests.cli_runner import run_cli

START, N = 32, 64
AT_21, AT_58 = START + 21, START + 58
# All different, so that a value read at another position is always another value.
CHOICES = {START + i: token for i, token in enumerate(random.Random(1).sample(range(1000), N))}


def dump(choices: dict[int, int], fed: list[int] | None = None, digest: int = 0) -> Dump:
    """64 decoded positions, one key each, with a greedy header in the order of ``choices``.

    ``fed``: tokens fed at START and after. ``digest``: xor-ed into each key from t40 on.
    """
    entries = [
        Entry(Key(START + i, None, "logits"), i ^ (digest if i >= 8 else 0)) for i in range(N)
    ]
    header = {"greedy": format_greedy(choices)}
    if fed is not None:
        header["tokens"] = ",".join(map(str, [*range(START), *fed]))
    return Dump(header, {MAIN: entries}, "test")


def flips_by_list_index(ref: Dump, dut: Dump) -> list[int]:
    """The wrong reading: the i-th choice of one list against the i-th of the other."""
    sides = [side.header["greedy"].split(",") for side in (ref, dut)]
    values = [[part.split(":")[1] for part in side] for side in sides]
    return [i for i, (a, b) in enumerate(zip(*values, strict=False)) if a != b]


def swapped() -> dict[int, int]:
    """The same choices, with the entry of token 21 standing where token 58's stood."""
    order = list(CHOICES)
    order[21], order[58] = order[58], order[21]
    return {pos: CHOICES[pos] for pos in order}


# --- choices --------------------------------------------------------------------------------------


def test_token_21_standing_at_58_is_no_flip() -> None:
    ref, dut = dump(CHOICES), dump(swapped())
    assert flips_by_list_index(ref, dut) == [21, 58], "the trap is set"
    match = match_greedy(ref, dut)
    assert (match.equal, match.flip, match.note) == (True, None, "")
    tree = compare_dumps(ref, dut)
    assert (tree.verdict, tree.level) == (Verdict.SAME, Level.BIT)


def test_list_shifted_by_a_missing_choice_is_no_flip() -> None:
    ref = dump(CHOICES)
    dut = dump({pos: token for pos, token in CHOICES.items() if pos != AT_21})
    assert flips_by_list_index(ref, dut) == list(range(21, N - 1)), "the trap is set"
    match = match_greedy(ref, dut)
    assert match.flip is None
    assert match.note == "greedy choices not recorded: 1 in dut"
    assert len(match.choices) == N - 1
    assert not match.equal


def test_flip_is_reported_at_its_own_position_with_both_tokens() -> None:
    # The dut chose at 58 what the ref chose at 21: the two must not be taken for each other.
    dut = dump({**swapped(), AT_58: CHOICES[AT_21]})
    match = match_greedy(dump(CHOICES), dut)
    assert match.flip == (AT_58, CHOICES[AT_58], CHOICES[AT_21])
    assert [row for row in match.choices if row[1] != row[2]] == [match.flip]
    assert not match.equal


def test_first_flip_is_the_lowest_position_not_the_first_in_the_list() -> None:
    dut = dump({AT_58: 1001, AT_21: 1002, **{p: CHOICES[p] for p in CHOICES if p < AT_21}})
    assert match_greedy(dump(CHOICES), dut).flip == (AT_21, CHOICES[AT_21], 1002)


@given(st.permutations(range(N)), st.sets(st.integers(0, N - 1)))
@settings(derandomize=True, max_examples=50)
def test_order_of_the_list_never_matters(order: list[int], changed: set[int]) -> None:
    dut = {START + i: CHOICES[START + i] + 1000 * (i in changed) for i in order}
    match = match_greedy(dump(CHOICES), dump(dut))
    found = [pos - START for pos, ref, dut in match.choices if ref != dut]
    assert found == sorted(changed)
    assert match.equal is not bool(changed)


# --- keys after the tokens part -------------------------------------------------------------------


def labelled(ref: Dump, dut: Dump) -> Tree:
    """The tree of two dumps with the parting labelled."""
    tree = compare_dumps(ref, dut)
    label_parting(tree, ref, dut)
    return tree


FED = list(range(100, 100 + N))
OTHER = [*FED[:20], 7, *FED[21:]]  # another token at t52


@pytest.mark.parametrize(
    ("ref", "dut", "found"),
    [
        (FED, FED, None),
        (FED, OTHER, (52, "120", "7")),
        (FED, FED[:20], None),
        (FED, None, None),
        ([], FED, None),
    ],
    ids=["same", "other", "stopped", "unnamed", "prompt only"],
)
def test_parting(ref: list[int], dut: list[int] | None, found: tuple[int, str, str] | None) -> None:
    assert parting(dump(CHOICES, ref), dump(CHOICES, dut)) == found


def test_keys_from_the_parting_on_are_not_comparable() -> None:
    tree = labelled(dump(CHOICES, FED), dump({**CHOICES, 51: 7}, OTHER, digest=1 << 40))
    assert (tree.verdict, tree.first) == (Verdict.DIVERGED, "t40_logits")
    states = [row.state for row in tree.keys]
    same, differs, masked = KeyState.SAME, KeyState.DIFFERS, KeyState.NOT_COMPARABLE
    assert states == [same] * 8 + [differs] * 12 + [masked] * 44
    assert (tree.counts.same, tree.counts.differ, tree.counts.not_comparable) == (8, 12, 44)
    assert (tree.counts.ref, tree.counts.dut, tree.counts.total) == (N, N, N)
    note = "tokens part at t52 (ref 120, dut 7): from there on the keys compare different inputs"
    assert tree.notes[0] == note
    assert not [text for text in tree.notes if text.startswith("tokens differ")]
    assert tree.greedy[51 - START][1:] == (CHOICES[51], 7)


def test_equal_keys_after_the_parting_are_no_evidence_either() -> None:
    ref, dut = dump(CHOICES, FED), dump(CHOICES, OTHER, digest=1 << 40)
    for side in (ref, dut):
        side.segments[MAIN][60] = replace(side.segments[MAIN][60], digest=5)
    assert labelled(ref, dut).keys[60].state == KeyState.NOT_COMPARABLE


def test_parting_before_the_first_key_that_differs_is_noted_alone() -> None:
    # Made with another prompt: nothing before explains, and masking would hide every key.
    tree = labelled(dump(CHOICES, FED), dump(CHOICES, [7, *FED[1:]], digest=1 << 40))
    assert (tree.verdict, tree.first) == (Verdict.DIVERGED, "t40_logits")
    assert tree.counts.not_comparable == 0
    assert tree.notes[0].startswith("tokens part at t32 (ref 100, dut 7): ")


def test_same_tokens_leave_the_tree_alone() -> None:
    ref, dut = dump(CHOICES, FED), dump(CHOICES, FED, digest=1 << 40)
    assert labelled(ref, dut) == compare_dumps(ref, dut)


# --- runs: each side follows its own choices ------------------------------------------------------


def diff(tmp_path: Path, *options: str) -> tuple[int, Tree]:
    """fast, of its older variants, on moe-tiny seed 7: it flips the token chosen at t42."""
    path = tmp_path / "run.json"
    dut = "cpu:fast-split_keys-zero_point"
    words = ("diff", "--ref", "cpu", "--dut", dut, "--seed", "7", "--n", "16", *options)
    result = run_cli(*words, "--json", str(path))
    assert path.exists(), result.stderr
    return result.status, Tree.from_json(path.read_text())


def flipped(tree: Tree) -> list[int]:
    """Positions at which the sides chose differently."""
    return [pos for pos, ref, dut in tree.greedy if ref != dut]


def test_fed_the_ref_s_tokens_a_flip_stays_alone(tmp_path: Path) -> None:
    status, tree = diff(tmp_path)
    assert status == 1
    assert flipped(tree) == [42]
    assert tree.counts.not_comparable == 0
    assert not [note for note in tree.notes if "tokens" in note]


def test_following_its_own_the_tokens_part_after_the_flip(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--tokens-from", "own")
    assert status == 1
    assert flipped(tree)[0] == 42
    assert len(flipped(tree)) > 1, "what follows is another text"
    chosen = next(row for row in tree.greedy if row[0] == 42)
    assert tree.notes[0].startswith(f"tokens part at t43 (ref {chosen[1]}, dut {chosen[2]}): ")
    masked = [row.key for row in tree.keys if row.state == KeyState.NOT_COMPARABLE]
    assert len(masked) == tree.counts.not_comparable == 5 * 46  # t43 to t47
    assert min(Key.parse(tag).pos for tag in masked) == 43
    assert Key.parse(tree.first or "").pos < 43


def test_bisection_names_the_parting_too(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--tokens-from", "own", "--bisect")
    assert status == 1
    assert tree.notes[0].startswith("tokens part at t43 ")
    assert not [note for note in tree.notes if note.startswith("tokens differ")]


@pytest.mark.parametrize("more", [(), ("--bisect",)], ids=["linear", "bisect"])
def test_with_the_ref_s_state_the_first_token_is_the_ref_s(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    # The side that takes over a state has chosen nothing before P.
    status, tree = diff(tmp_path, "--tokens-from", "own", "--prefill", "ref", *more)
    assert (status, tree.first) == (1, "t32_l0_kraw")
    assert tree.ref["tokens"].split(",")[:33] == tree.dut["tokens"].split(",")[:33]


def test_same_sides_never_part(tmp_path: Path) -> None:
    path = tmp_path / "same.json"
    words = ("diff", "--ref", "cpu", "--dut", "cpu", "--tokens-from", "own", "--json", str(path))
    assert run_cli(*words).status == 0
    tree = Tree.from_json(path.read_text())
    assert (tree.verdict, tree.counts.not_comparable) == ("same", 0)


def test_side_that_is_fed_fewer_tokens_goes_on_by_itself() -> None:
    # As after a ref that stopped early: no step of the dut is left without a token.
    run = make_run(
        **{"model": "moe-tiny", "weights": "q4", "seed": 7, "tokens": "1,2,3", "n": 4},
        **{"fields": "", "dump_prefill": False, "hash_name": "fnv1a64"},
    )
    spec = parse_spec("cpu", ["cpu"])
    assert isinstance(spec, EngineSpec)
    side = open_side("dut", spec, run, Progress(quiet=True))
    own = run_side(side, run)
    started = run_side(side, run, fed=[11])
    assert started.fed[0] == 11
    assert started.fed[1:] == [started.choices[pos] for pos in range(3, 6)]
    assert run_side(side, run, fed=own.fed[:2]).fed == own.fed
