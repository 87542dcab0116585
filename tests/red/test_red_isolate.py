"""``parity isolate`` on planted causes: variants, pairs that act together, kernels, single keys."""

from __future__ import annotations

from functools import cache
from math import ceil, log2
from pathlib import Path

import pytest

from parity.cli.options import make_run
from parity.isolate.placement import GROUPS
from parity.isolate.trials import Trusted, outcome_of, respelled
from parity.keys import Key
from parity.progress import Progress
from parity.runs.run import Run, Side, run_side
from parity.runs.sides import open_side
from parity.spec import EngineSpec, parse_spec
from parity.tree import Isolation, Tree
from parity.variants import TIERS
from tests.cli_runner import run_cli

PROMPT = "5,8,13,21,34,55,89,144"
SHORT = ("--tokens", PROMPT, "--n", "1", "--no-cache")
HANDED = (*SHORT, "--prefill", "ref")
ENGINES = "tests.red.isolate_engines"
ACTING = f"{ENGINES}:Acting"


def isolate(tmp_path: Path, dut: str, *words: str) -> tuple[Tree, Isolation]:
    """``parity isolate`` of a red run, from the ref's state unless ``words`` say otherwise."""
    path = tmp_path / "run.json"
    result = run_cli("isolate", "--dut", dut, *(words or HANDED), "--json", str(path))
    assert path.exists(), result.stderr
    tree = Tree.from_json(path.read_text())
    assert result.status == tree.verdict.exit_status
    assert tree.isolation is not None
    return tree, tree.isolation


def guilty(tmp_path: Path, dut: str, *words: str) -> Isolation:
    """Of the variants alone."""
    return isolate(tmp_path, dut, *(words or HANDED), "--only", "variants")[1]


def runs_in(note: str) -> int:
    """The runs that ``1 to find the guilty, 0 for interactions, ...`` adds up to."""
    assert note.startswith("runs of the dut after the red one: ")
    return sum(int(part.split()[0]) for part in note.split(": ")[1].split(";")[0].split(", "))


# --- single variants ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "name"),
    [("cpu", "split_k"), ("cpu", "two_pass"), ("cpu", "split_keys"), ("emu", "fold_p")],
)
def test_one_variant_is_guilty_in_one_run(tmp_path: Path, engine: str, name: str) -> None:
    tree, found = isolate(tmp_path, f"{engine}:exact+{name}", *HANDED, "--only", "variants")
    assert (found.variants, found.guilty, found.runs) == ([name], [name], 1)
    assert [(trial.removed, trial.first) for trial in found.ladder] == [
        ([], tree.first),
        ([name], None),
    ]
    assert (found.ladder[1].differ, found.ladder[1].total) == (0, 46)


@pytest.mark.parametrize("name", ["rsqrt", "two_pass"])
def test_one_guilty_among_those_without_effect(tmp_path: Path, name: str) -> None:
    # A dense model has no router and no experts, and blocks that split_k leaves alone.
    idle = ("router_tree", "scale_assoc", "fold_p", "libm_sincos", "div_by_inverse")
    found = guilty(
        tmp_path, f"cpu:exact+{'+'.join((name, *idle))}", *HANDED, "--model", "dense-tiny"
    )
    assert (found.guilty, found.needed, found.interactions) == ([name], [], [])
    searched = int(found.notes[0].split(":")[1].split()[0])
    assert 1 <= searched <= 1 + ceil(log2(len(found.variants)))
    assert found.runs <= searched + len(found.variants)


def test_variant_that_the_ref_runs_too_stays_on(tmp_path: Path) -> None:
    words = ("--ref", "cpu:exact+fma", *HANDED)
    found = guilty(tmp_path, "cpu:exact+fma+two_pass", *words)
    assert (found.variants, found.guilty) == (["two_pass"], ["two_pass"])
    assert found.trials[-1].kept == ["fma"]


def test_variant_that_the_ref_alone_runs_is_named(tmp_path: Path) -> None:
    found = guilty(tmp_path, "cpu:exact+fma", "--ref", "cpu:exact+fma+two_pass", *HANDED)
    assert (found.variants, found.reason) == ([], "the ref runs the dut's too: fma")
    assert "the ref runs variants that the dut lacks: two_pass" in found.notes


# --- fast -----------------------------------------------------------------------------------------


@cache
def trusted() -> tuple[Run, Trusted]:
    run = make_run(
        model="moe-tiny",
        weights="q4",
        seed=7,
        tokens=PROMPT,
        n=1,
        fields="",
        dump_prefill=False,
        hash_name="fnv1a64",
        prefill="ref",
    )
    ref = side("cpu", run)
    return run, Trusted(ref, run, run_side(ref, run))


def spec_of(text: str) -> EngineSpec:
    spec = parse_spec(text, ["cpu", "emu"])
    assert isinstance(spec, EngineSpec)
    return spec


def side(text: str, run: Run) -> Side:
    return open_side("dut", spec_of(text), run, Progress(quiet=True))


@cache
def differs(engine: str, variants: frozenset[str]) -> bool:
    """A run of just these variants, made here and compared in full."""
    run, ref = trusted()
    spec = respelled(spec_of(f"{engine}:fast"), "fast", variants)
    return outcome_of(ref, side(spec.text, run)).first is not None


@pytest.mark.parametrize("engine", ["cpu", "emu"])
def test_fast_is_explained_by_the_variants_that_act(tmp_path: Path, engine: str) -> None:
    fast = TIERS["fast"]
    tree, found = isolate(tmp_path, f"{engine}:fast", *HANDED, "--only", "variants")
    rest = fast - set(found.guilty)
    assert not differs(engine, rest)
    assert all(differs(engine, rest | {name}) for name in found.guilty)
    assert {name for name in fast if differs(engine, frozenset({name}))} == set(found.guilty)
    assert (found.needed, found.interactions, found.reason) == ([], [], "")
    assert found.guilty == [name for name in found.variants if name in found.guilty]
    # The ladder: one more removed each time, the first difference never moves back.
    last = found.ladder[-1].removed
    assert set(last) == set(found.guilty)
    assert [trial.removed for trial in found.ladder] == [
        last[:count] for count in range(len(last) + 1)
    ]
    assert found.ladder[0].first == tree.first
    firsts = [Key.parse(trial.first) for trial in found.ladder if trial.first is not None]
    assert len(firsts) == len(found.guilty)
    assert len(set(firsts)) >= 4
    assert found.ladder[-1].differ == 0


def test_variant_without_effect_is_not_guilty(tmp_path: Path) -> None:
    # Four blocks a row in every matrix of moe-48: split_k adds them in the same order.
    found = guilty(tmp_path, "cpu:exact+split_k+norm_tree", *HANDED, "--model", "moe-48")
    assert (found.guilty, found.needed) == (["norm_tree"], [])


# --- variants that act together -------------------------------------------------------------------


def test_variant_that_matters_only_with_another(tmp_path: Path) -> None:
    found = guilty(tmp_path, f"{ACTING}:exact+idle+left+right")
    assert (found.guilty, found.needed) == (["left"], ["right"])
    assert found.interactions == ["left differs only together with right"]


def test_two_that_cancel_beside_a_guilty_one(tmp_path: Path) -> None:
    found = guilty(tmp_path, f"{ACTING}:exact+idle+early+up+down")
    assert found.guilty == ["early"]
    assert found.interactions == ["down and up cancel: each differs alone, together they do not"]


def test_variant_that_hides_another(tmp_path: Path) -> None:
    found = guilty(tmp_path, f"{ACTING}:exact+early+late+shield")
    assert found.guilty == ["late"]
    told = "shield hides early: alone it differs, beside shield it does not"
    assert found.interactions == [told]


def test_red_only_variants_that_act_on_each_other_are_named(tmp_path: Path) -> None:
    dut = f"{ACTING}:exact+early+up+down+left+right+late+shield+idle"
    found = guilty(tmp_path, dut)
    assert found.variants == sorted(found.variants)
    assert (found.guilty, found.needed) == (["late", "right"], [])
    assert found.interactions == [
        "right differs only together with left",
        "down and up cancel: each differs alone, together they do not",
        "shield hides early: alone it differs, beside shield it does not",
    ]
    assert runs_in(found.notes[0]) == found.runs


def test_variants_of_an_equal_run_that_cancel(tmp_path: Path) -> None:
    tree, found = isolate(tmp_path, f"{ACTING}:exact+up+down+idle", *HANDED, "--only", "variants")
    assert (tree.verdict, found.guilty, found.reason) == ("same", [], "nothing differs")
    assert found.interactions == ["down and up cancel: each differs alone, together they do not"]


def test_two_causes_move_the_first_difference_from_one_to_the_other(tmp_path: Path) -> None:
    found = guilty(tmp_path, f"{ACTING}:exact+late+idle+early+norm_tree")
    assert found.guilty == ["norm_tree", "early", "late"]
    assert [trial.removed for trial in found.ladder][1:3] == [["norm_tree"], ["norm_tree", "early"]]
    assert [trial.first for trial in found.ladder[1:]] == ["t8_l0_attn", "t8_l3_x", None]


# --- no variant explains it -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "group", "first"),
    [
        ("rmsnorm_product", "norm", "t8_l0_nrm"),
        ("wrong_position", "kvquant", "t8_l0_k"),
        ("visible_length", "attn", "t8_l0_attn"),
        ("residual", "o", "t8_l0_ores"),
        ("rank_order", "ffn", "t8_l0_x"),
    ],
)
def test_changed_kernel_differs_in_its_group_alone(
    tmp_path: Path, fault: str, group: str, first: str
) -> None:
    words = (*HANDED, "--only", "variants,placement", "--fields", "+ffn")
    _, found = isolate(tmp_path, f"tests.red.faults:Patched@fault={fault}", *words)
    assert (found.guilty, found.reason) == ([], "the dut runs none")
    by_group = {row.group: row for row in found.placements}
    expected = {"rope", group} if fault == "wrong_position" else {group}
    assert {name for name, row in by_group.items() if row.differ} == expected
    assert by_group[group].first == first
    assert set(by_group) == set(GROUPS) - {"conv", "delta", "gate"}


def test_variants_do_not_explain_a_changed_kernel(tmp_path: Path) -> None:
    dut = "tests.red.faults:Patched:exact+two_pass+norm_tree@fault=scale_order"
    found = guilty(tmp_path, dut, *HANDED, "--fields", "+ffn")
    assert found.guilty == []
    assert found.reason.startswith("without any of them the run still differs, first at t8_l0_gate")
    halves = {tuple(trial.removed): trial.first for trial in found.trials}
    assert halves[("norm_tree",)] is not None
    assert halves[("two_pass",)] is not None
    assert halves["norm_tree", "two_pass"] == "t8_l0_gate"


@pytest.mark.parametrize("variant", ["router_tree", "norm_tree"])
def test_placement_names_the_group_of_a_variant(tmp_path: Path, variant: str) -> None:
    _, found = isolate(tmp_path, f"cpu:exact+{variant}", *HANDED, "--only", "placement")
    differing = {row.group for row in found.placements if row.differ}
    # norm_tree acts on the heads of Q too, which leave nothing but the turned query.
    assert differing == ({"ffn"} if variant == "router_tree" else {"norm", "rope"})


def test_placement_of_a_hybrid_has_the_groups_of_both_kinds_of_layer(tmp_path: Path) -> None:
    words = (*HANDED, "--model", "hybrid-tiny", "--only", "placement")
    _, found = isolate(tmp_path, "cpu:exact+fma", *words)
    assert {row.group for row in found.placements} == set(GROUPS)
    clean = {row.group for row in found.placements if not row.differ}
    assert clean == {"norm", "conv", "delta"}


# --- transplants ----------------------------------------------------------------------------------


def test_transplant_of_the_only_moved_key_makes_the_run_equal(tmp_path: Path) -> None:
    dut = "tests.red.faults:Moved@key=t8_l1_attn"
    tree, found = isolate(tmp_path, dut, *HANDED, "--only", "transplant")
    assert tree.first == "t8_l1_attn"
    (made,) = found.transplants
    assert (made.keys, made.first, made.differ, made.total) == (["t8_l1_attn"], None, 0, 46)


def test_transplants_move_the_first_difference_on(tmp_path: Path) -> None:
    tree, found = isolate(tmp_path, "cpu:exact+two_pass", *HANDED, "--only", "transplant")
    assert tree.first == "t8_l0_attn"
    assert [(made.keys[-1], made.first) for made in found.transplants] == [
        ("t8_l0_attn", "t8_l1_attn"),
        ("t8_l1_attn", "t8_l2_attn"),
        ("t8_l2_attn", "t8_l3_attn"),
        ("t8_l3_attn", None),
    ]
    differing = [made.differ for made in found.transplants]
    assert differing == sorted(differing, reverse=True)
    told = "the ref's tensors at all 4 birthplaces make the run equal: "
    assert any(note.startswith(told) for note in found.notes)


def test_transplant_of_named_keys(tmp_path: Path) -> None:
    words = (*HANDED, "--only", "transplant")
    words += ("--transplant", "t8_l3_attn", "--transplant", "t8_l0_attn")
    _, found = isolate(tmp_path, "cpu:exact+two_pass", *words)
    assert [(made.keys, made.first) for made in found.transplants][:2] == [
        (["t8_l0_attn"], "t8_l1_attn"),
        (["t8_l0_attn", "t8_l3_attn"], "t8_l1_attn"),
    ]


# --- starts that differ ---------------------------------------------------------------------------


def test_contaminated_start_is_searched_in_the_prompt(tmp_path: Path) -> None:
    tree, found = isolate(tmp_path, "cpu:exact+two_pass", *SHORT)
    assert tree.reason == "contaminated start"
    assert found.guilty == ["two_pass"]
    # A query cannot matter at position 0, where it sees one key.
    assert [trial.first for trial in found.ladder] == ["t1_l0_attn", None]
    assert found.ladder[1].total == 9 * 46
    # The red run dumped no prompt: with these keys it is one more run.
    assert runs_in(found.notes[0]) == found.runs == 2
    assert {row.total for row in found.placements} == {46}
    assert found.transplants[0].keys == ["t8_l0_attn"]
    assert "transplants: decoded from the ref's state, for the start differs" in found.notes


def test_state_that_no_key_shows_is_named(tmp_path: Path) -> None:
    words = ("--n", "4", "--no-cache", "--only", "variants")
    tree, found = isolate(tmp_path, "tests.red.faults:LateRow:exact+router_tree", *words)
    assert tree.verdict == "diverged"
    assert found.guilty == []
    assert "first at end l3_v row 2 (position 2)" in found.reason
