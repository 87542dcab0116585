"""What parity diff must not blame: an op whose values are equal, a decode key after another start,
ops where the token was another one; and figures that must say what they count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parity.tree import EMBEDDING, TAP_LIES, Births, Cause, KeyState, Tree
from parity_reports.why import group_sentence, groups, leading_birth
from tests.cli.running import SHORT, diff
from tests.cli_runner import run_cli
from tests.reports import trees

BIRTHS = "tests.red.birth_engines"
STARTS = "tests.red.start_faults"
TAP = f"{TAP_LIES}: the tap of dut does not report what it computes"


def long_diff(tmp_path: Path, *words: str) -> tuple[int, Tree, str]:
    """Status, tree and console text of a run with the whole prompt."""
    path = tmp_path / "run.json"
    result = run_cli("diff", "--n", "3", *words, "--json", str(path))
    assert path.exists(), result.stderr
    return result.status, Tree.from_json(path.read_text()), result.stdout


# --- a tap that lies ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first"), [("StaleBuffer", "t3_l0_attn"), ("FrozenTap", "t3_l0_nrm")]
)
def test_red_equal_values_with_other_digests_blame_no_op(
    tmp_path: Path, name: str, first: str
) -> None:
    status, tree = diff(tmp_path, "--dut", f"{BIRTHS}:{name}")
    assert (status, tree.verdict, tree.first, tree.reason) == (1, "diverged", first, TAP)
    assert tree.births is not None
    assert (tree.births.found, tree.births.complete) == ([], False)
    assert {row.cause for row in tree.keys} == {""}
    said = run_cli("diff", *SHORT, "--dut", f"{BIRTHS}:{name}")
    assert said.stdout.startswith(f"DIVERGED  {TAP}, first at {first}\n")
    assert "contract" not in said.stdout
    quiet = run_cli("diff", *SHORT, "--dut", f"{BIRTHS}:{name}", "-q")
    assert quiet.stdout.startswith(f"diverged: {TAP}, {first}, ")


def test_the_ref_s_tap_is_named_where_it_is_the_one(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--ref", f"{BIRTHS}:StaleBuffer", "--dut", "cpu")
    assert (status, tree.first) == (1, "t3_l0_attn")
    assert tree.reason == TAP.replace("of dut", "of ref")


# --- another start --------------------------------------------------------------------------------


@pytest.mark.parametrize("dut", ["cpu:exact+libm_exp", f"{STARTS}:Trap@variant=libm_exp"])
def test_cause_of_another_start_is_the_prompt_s_birth(tmp_path: Path, dut: str) -> None:
    status, tree, text = long_diff(tmp_path, "--dut", dut)
    assert status == 1
    birth = leading_birth(tree)
    assert birth is not None
    assert (birth.key, birth.dumped, birth.state) == ("t21_l0_attn", False, "")
    assert birth.elements is not None
    assert birth.elements.differ == 3
    assert bool(birth.functions) == dut.startswith("cpu")  # the trap hides its variant
    own, _, decode = text.partition("  decode   ")
    assert "cause    t21_l0_attn: attention (contract 1.8)" in own
    assert "cause    " not in decode
    assert ("cause: attention (contract 1.8)" in decode) == dut.startswith("cpu")
    assert "\n  t21_l0_attn  f32[4,96]" in decode


def test_no_decode_key_is_the_cause_of_another_start(tmp_path: Path) -> None:
    dut = f"{STARTS}:TrapAndFault@variant=rsqrt@key=t33_l1_attn@begin=30"
    _, tree, _ = long_diff(tmp_path, "--dut", dut)
    assert tree.births is not None
    late = [birth for birth in tree.births.found if birth.key == "t33_l1_attn"]
    only_late = replace(tree, births=replace(tree.births, found=late))
    assert late
    assert leading_birth(only_late) is None


def test_another_token_is_named_and_no_op(tmp_path: Path) -> None:
    _, tree, text = long_diff(tmp_path, "--dut", f"{STARTS}:OtherToken@begin=4")
    assert tree.births is not None
    assert [(one.key, one.op) for one in tree.births.found] == [("t4_l0_nrm", EMBEDDING)]
    assert "cause    t4_l0_nrm: token or embedding;" in text
    assert "RMSNorm" not in text


def test_another_token_of_a_dumped_prompt_is_the_source_of_all(tmp_path: Path) -> None:
    dut = f"{STARTS}:OtherToken@begin=1"
    _, tree = diff(tmp_path, "--dut", dut, "--dump-prefill")
    causes = {row.key: (row.cause, row.source) for row in tree.keys if row.key.startswith("t1_")}
    assert causes["t1_l0_nrm"] == (Cause.BORN, "")
    assert causes["t1_l0_ores"] == (Cause.INHERITED, "t1_l0_nrm")
    assert {source for _, source in causes.values()} == {"", "t1_l0_nrm"}


def test_two_ops_that_are_wrong_everywhere_stay_two(tmp_path: Path) -> None:
    keys = "+".join(f"t3_l{layer}_{field}" for layer in (0, 1) for field in ("nrm", "ores"))
    _, tree = diff(tmp_path, "--dut", f"tests.red.planted:Planted@keys={keys}")
    assert tree.births is not None
    assert [one.key for one in tree.births.found] == keys.split("+")
    assert EMBEDDING not in {one.op for one in tree.births.found}


@pytest.mark.parametrize("dut", [f"{STARTS}:Trap@variant=rsqrt", f"{STARTS}:MovedPart@part=l2_v"])
def test_bisection_says_how_to_search_the_start(tmp_path: Path, dut: str) -> None:
    _, tree, text = long_diff(tmp_path, "--dut", dut, "--bisect")
    assert tree.births is not None
    assert not tree.births.complete
    assert tree.births.reason.startswith("nothing of the start was searched")
    assert tree.births.reason.endswith("(parity diff without --bisect: all)")
    assert "not named: nothing of the start was searched" in " ".join(text.split())


# --- what figures count ---------------------------------------------------------------------------


def test_flips_of_the_decoding_are_not_the_run_s_own() -> None:
    tree = trees.decode_explained()
    assert tree.decode is not None
    flipped = replace(tree, decode=replace(tree.decode, greedy=[(48, 886, 20)]))
    from parity_reports.console import ConsoleReport

    text = ConsoleReport().render(flipped)
    assert "\n           greedy: other token at 1 of 1 positions: t48 ref 886 dut 20\n" in text
    assert "\n  greedy   " not in text


def test_births_at_keys_that_are_not_comparable_are_counted() -> None:
    births: Births = trees.births()
    first = births.found[0]
    found = [first, replace(first, key="t40_l7_attn", state=KeyState.NOT_COMPARABLE)]
    (group,) = groups(found)
    assert group_sentence(group).endswith("; 1 at keys that are not comparable")


@pytest.mark.parametrize(("steps", "differ", "total"), [(3, 58, 138), (4, 1, 11)])
def test_bisection_of_a_shaky_side_shows_its_two_runs(
    tmp_path: Path, steps: int, differ: int, total: int
) -> None:
    words = ("--dut", "tests.red.faults:Shaky", "--bisect", "--n", str(steps))
    status, tree, text = long_diff(tmp_path, *words)
    assert (status, tree.verdict, tree.first) == (1, "unstable", "t32_l0_x")
    assert tree.stability is not None
    assert tree.stability.tree is not None
    assert tree.stability.tree.first == "t32_l0_x"
    assert f"keys     between run 1 and run 2: {differ} of {total} differ" in text
    assert "t32_l0_x  f32[160]  run 1 " in text


def test_control_of_an_engine_that_moves_nothing_it_runs(tmp_path: Path) -> None:
    """The engine's own fault stands in the prompt, and leaves the planted one alone."""
    status, tree, _ = long_diff(tmp_path, "--dut", "tests.red.faults:Moved@key=t5_l0_attn")
    assert (status, tree.verdict) == (0, "same")
    assert tree.control is not None
    assert tree.control.fired


def test_kernels_of_every_field_stand_in_the_record(tmp_path: Path) -> None:
    _, tree = diff(tmp_path, "--dut", "tests.red.planted:Planted@keys=t4_l2_attn")
    assert tree.births is not None
    assert tree.births.kernels["knorm"] == (["headnorm"], ["headnorm"])
    assert tree.births.kernels["attn"][1] == tree.births.found[0].dut_kernels
    assert set(tree.births.kernels) >= {"nrm", "kraw", "k", "v", "qrope", "ores", "x", "logits"}
