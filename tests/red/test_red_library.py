"""Sides of different arithmetic: bits are not expected, and what is wrong is red all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import parity
from parity.comparison.compare import exit_status
from parity.errors import ParityBug
from parity.presenting import require_consistent
from parity.tree import Tree
from tests.cli_runner import Result, run_cli

FAULTS = "tests.red.arithmetic_faults"
MODEL = ("--model", "dense-tiny", "--weights", "f32")


def diff(
    path: Path, dut: str, *options: str, ref: str = "cpu", model: tuple[str, ...] = MODEL
) -> tuple[Result, Tree]:
    """``parity diff`` of a ref in the contract's order against an engine of these faults."""
    saved = path / "run.json"
    words = ("--ref", ref, "--dut", f"{FAULTS}:{dut}:fast", "--json", str(saved))
    result = run_cli("diff", *words, *model, *options)
    assert saved.exists(), result.stderr
    return result, Tree.from_json(saved.read_text())


# --- green ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["dense-tiny", "moe-tiny", "hybrid-tiny"])
def test_another_order_is_green_and_says_that_no_bit_was_expected(
    tmp_path: Path, model: str
) -> None:
    options = ("--fields", "+ffn") if model == "moe-tiny" else ()
    result, tree = diff(tmp_path, "Library", *options, model=("--model", model, *MODEL[2:]))
    line = result.stdout.splitlines()[0]
    assert line == "SAME  at level greedy, bits not expected: every field within its bound"
    assert (result.status, tree.verdict, tree.level, tree.level_asked) == (
        *(0, "same", "greedy", "greedy"),
    )
    assert tree.counts.differ > tree.counts.same
    found, control = tree.profile, tree.control
    assert found is not None
    assert control is not None
    assert (found.judged, found.outside, found.arithmetic, found.positions) == (True, "", "f32", 4)
    assert all(row.bound is not None for row in found.rows)
    assert (control.kind, control.unit, control.fired) == ("inject", "bound", True)
    assert control.found == control.key
    assert f"fired: 3 times the bound at {control.key}" in result.stdout


def test_the_pair_is_judged_so_in_either_direction_and_where_greedy_was_typed(
    tmp_path: Path,
) -> None:
    words = ("--ref", f"{FAULTS}:Library:fast", "--dut", "cpu", *MODEL, "-q")
    done = run_cli("diff", *words)
    said = "level greedy, bits not expected: every field within its bound, control fired\n"
    assert (done.status, done.stdout.endswith(said)) == (0, True)
    result, tree = diff(tmp_path, "Library", "--level", "greedy", "-q")
    assert (result.status, tree.level_asked, tree.profile is not None) == (0, "greedy", True)


def test_two_engines_of_orders_of_their_own_are_asked_for_bits(tmp_path: Path) -> None:
    _, tree = diff(tmp_path, "Library", "-q", ref=f"{FAULTS}:Library:fast")
    assert (tree.verdict, tree.level, tree.level_asked, tree.profile) == (
        "same",
        "bit",
        "bit",
        None,
    )


def test_bits_that_were_typed_are_red_as_ever(tmp_path: Path) -> None:
    result, tree = diff(tmp_path, "Library", "--level", "bit", "--prefill", "ref")
    assert (result.status, tree.verdict, tree.first) == (1, "diverged", "t32_l0_nrm")
    assert tree.births is not None
    assert tree.profile is not None
    assert (tree.profile.judged, tree.profile.outside) == (False, "")
    assert "DIVERGED  first at t32_l0_nrm, born here" in result.stdout


def test_in_python_it_is_neither_same_nor_diverged_and_ends_0() -> None:
    found = parity.diff("cpu", f"{FAULTS}:Library:fast", model="dense-tiny", weights="f32", n=1)
    assert (found.same, found.diverged, int(found.exit_status)) == (False, False, 0)
    found.raise_for_status()


def test_fields_that_a_side_never_has_are_named_and_counted(tmp_path: Path) -> None:
    result, tree = diff(tmp_path, "Lacking")
    assert (result.status, tree.counts.missing, tree.verdict) == (0, 32, "same")
    names = ", ".join(f"l{layer}_{field}" for layer in range(4) for field in ("knorm", "ores"))
    assert f"only the ref has {names} (32 keys, not judged)" in tree.notes
    assert tree.profile is not None
    assert tree.profile.lone_keys("ref") == 32


OWN_TABLE = "inv_freq differs: each side computes its own, of no file; judged by k and qrope"


def test_a_rotary_table_of_its_own_is_no_other_weight_and_a_line_says_so(tmp_path: Path) -> None:
    result, tree = diff(tmp_path, "OwnTable")
    line = "SAME  at level greedy, bits not expected: every field within its bound, weights digests"
    assert (result.status, result.stdout.splitlines()[0]) == (0, f"{line} differ")
    assert OWN_TABLE in tree.notes
    assert OWN_TABLE not in diff(tmp_path, "Library")[1].notes


# --- red ------------------------------------------------------------------------------------------

OUTSIDE = {
    "Scaled": "t32_l2_kraw",
    "OtherEps": "t32_l0_nrm",
    "OtherTheta": "t32_l0_k",
    "OwnTheta": "t32_l0_k",
    "HeadsSwapped": "t32_l2_qrope",
    "LayersSwapped": "t32_l1_nrm",
    "OtherWeights": "t32_l0_kraw",
    "NotFinite": "t34_l1_attn",
    "GivesNoValues": "t32_l0_v",
}


@pytest.mark.parametrize("fault", OUTSIDE)
def test_red_a_wrong_engine_is_outside_the_bound_at_its_key(tmp_path: Path, fault: str) -> None:
    result, tree = diff(tmp_path, fault)
    first = OUTSIDE[fault]
    line = f"DIVERGED  bits not expected, outside the bound, first at {first}"
    assert (result.status, result.stdout.splitlines()[0]) == (1, line)
    assert (tree.verdict, tree.first, tree.control) == ("diverged", first, None)
    assert tree.profile is not None
    assert tree.profile.outside == first
    row = next(row for row in tree.profile.rows if row.outside == first)
    if fault == "GivesNoValues":
        assert row.unmeasured == row.keys == 4
    elif fault == "NotFinite":
        assert row.nonfinite == 1
    else:
        assert row.relative is not None
        assert row.bound is not None
        assert row.relative > row.bound
        assert tree.elements is not None
        assert tree.elements.key == first


@pytest.mark.parametrize("fault", ["OtherEps", "OtherTheta"])
def test_red_in_a_hybrid(tmp_path: Path, fault: str) -> None:
    model = ("--model", "hybrid-tiny", "--weights", "f32")
    result, tree = diff(tmp_path, fault, "--n", "1", "-q", model=model)
    # The first layer with a rope is 3.
    first = {"OtherEps": "t32_l0_nrm", "OtherTheta": "t32_l3_k"}[fault]
    assert (result.status, tree.verdict, tree.first) == (1, "diverged", first)


def test_red_another_choice_within_the_bound_has_its_margin(tmp_path: Path) -> None:
    result, tree = diff(tmp_path, "Above", ref=f"{FAULTS}:Below")
    flip = next(row for row in tree.greedy if row[1] != row[2])
    line = "DIVERGED  bits not expected, another greedy choice, first at t33_logits"
    assert (result.status, result.stdout.splitlines()[0]) == (1, line)
    assert tree.profile is not None
    assert tree.profile.outside == ""
    (margin,) = tree.margins
    assert (margin.pos, margin.ref_id, margin.dut_id, margin.gap) == (33, *flip[1:], 1)
    assert "other token at 1 of 5 positions" in result.stdout


OTHERWISE = {
    "LosesOne": ("keys are missing of fields that both sides have", "t34_l0_attn"),
    "LosesLogits": ("no logits were compared", None),
}


@pytest.mark.parametrize("fault", OTHERWISE)
def test_red_what_was_not_compared_is_not_green(tmp_path: Path, fault: str) -> None:
    result, tree = diff(tmp_path, fault, "-q")
    reason, first = OTHERWISE[fault]
    assert (result.status, tree.verdict, tree.first) == (1, "diverged", first)
    assert tree.reason == f"bits not expected, {reason}"


@pytest.mark.parametrize("fault", ["Told", "OwnTableAndTold"])
def test_red_weights_of_one_type_with_other_bytes(tmp_path: Path, fault: str) -> None:
    result, tree = diff(tmp_path, fault, "-q")
    assert (result.status, tree.verdict, tree.first) == (1, "diverged", None)
    assert tree.reason == "bits not expected, weights differ in 1 tensor, first embed"


def test_red_a_side_that_does_not_repeat_itself(tmp_path: Path) -> None:
    result, tree = diff(tmp_path, "Restless")
    line = "UNSTABLE  dut not repeatable, first at t34_l3_x in run 2 of 2"
    assert (result.status, result.stdout.splitlines()[0]) == (1, line)
    assert tree.profile is None


def test_red_a_control_that_is_not_seen_leaves_nothing_proved(tmp_path: Path) -> None:
    result, tree = diff(tmp_path, "IgnoresInject", "-q")
    assert (result.status, tree.verdict, tree.level) == (3, "not_run", "none")
    assert tree.control is not None
    assert (tree.control.fired, tree.control.found) == (False, None)
    assert tree.reason.startswith(
        f"the control did not fire: a fault planted at {tree.control.key} was found at nothing"
    )


def test_without_inject_the_value_that_was_given_is_moved(tmp_path: Path) -> None:
    result, tree = diff(tmp_path, "NoInject")
    assert (result.status, tree.control is not None) == (0, True)
    assert tree.control is not None
    assert (tree.control.kind, tree.control.fired) == ("dump level", True)
    assert result.stdout.splitlines()[0].endswith("within its bound, control: dump level")


def test_without_values_nothing_is_measured() -> None:
    result = run_cli("diff", "--dut", f"{FAULTS}:NoCapture:fast", *MODEL, "-q")
    problem = "lacks the capability 'capture': nothing can be measured"
    assert (result.status, result.stdout) == (3, "")
    assert problem in result.stderr
    assert "--level bit" in result.stderr


@pytest.mark.parametrize("option", [("--bisect",), ("--repro", "r")], ids=["bisect", "repro"])
def test_what_looks_for_the_first_bit_is_refused(
    tmp_path: Path, option: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_cli("diff", "--dut", f"{FAULTS}:Library:fast", *MODEL, *option, "-q")
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith(f"parity: {option[0]} finds the first bit that differs, and of")
    assert f"leave {option[0]} out, or ask for them with --level bit" in result.stderr


def test_a_search_keeps_no_values() -> None:
    result = run_cli("diff", "--dut", "cpu:fast", "--bisect", "--profile", "-q")
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith("parity: --bisect keeps no values to measure")


def test_a_file_has_no_values_to_measure(tmp_path: Path) -> None:
    saved = tmp_path / "run.dump"
    assert run_cli("dump", "--model", "dense-tiny", "--n", "1", "-o", str(saved)).status == 0
    result = run_cli("diff", "--ref", str(saved), "--model", "dense-tiny", "--n", "1", "--profile")
    problem = "parity: --profile needs two engines\n  next: name engines on both sides\n"
    assert (result.status, result.stdout, result.stderr) == (2, "", problem)


# --- a tree that says green and is not ------------------------------------------------------------


def tampered(tmp_path: Path, **parts: object) -> Tree:
    """A green tree of a judged pair, with some parts of its JSON replaced."""
    diff(tmp_path, "Library", "--n", "1", "-q")
    body = json.loads((tmp_path / "run.json").read_text())
    for name, part in parts.items():
        body[name] = {**body[name], **part} if isinstance(part, dict) else part
    return Tree.from_json(json.dumps(body))


@pytest.mark.parametrize(
    "parts",
    [
        {"profile": {"outside": "t32_l0_x"}},
        {"counts": {"missing": 1}},
        {"counts": {"extra": 1}},
        {"counts": {"not_comparable": 1}},
        {"level": "none"},
        {"verdict": "diverged"},
        {"profile": {"lone": [{"side": "ref", "name": "l0_x", "keys": 3}]}},
    ],
    ids=lambda parts: json.dumps(parts),
)
def test_red_no_part_of_a_judged_tree_is_taken_on_trust(
    tmp_path: Path, parts: dict[str, object]
) -> None:
    assert exit_status(tampered(tmp_path)) == 0
    assert exit_status(tampered(tmp_path, **parts)) == 1


def test_red_a_report_of_a_green_tree_with_a_field_outside_is_refused(tmp_path: Path) -> None:
    tree = tampered(tmp_path, profile={"outside": "t32_l0_x"})
    with pytest.raises(ParityBug, match="verdict same, but t32_l0_x is outside its bound"):
        require_consistent(tree)
