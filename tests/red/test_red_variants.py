"""The variant table of contract 5: each named departure is found at the first key its op feeds.

Dense-effect variants stand here with the key they must show first, on pinned models; the sparse
ones (test_red_sparse.py) with a key that is predicted. Prefill is exact on both sides: the dut
takes over the ref's state, so that the key is the op's own and no contaminated start.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest

from parity.cli.options import make_run
from parity.comparison.compare import compare_dumps
from parity.keys import Key, KeyOrder
from parity.progress import Progress
from parity.runs.run import Run, Side, SideRun, run_side
from parity.runs.sides import open_side
from parity.spec import EngineSpec, parse_spec
from parity.tree import Tree
from parity.variants import EXCLUSIVE, TIERS, VARIANTS
from tests.cli_runner import Result, run_cli


class Case(NamedTuple):
    """A variant on a pinned model, and the place at the first decoded position that must be the
    first, or ""."""

    variant: str
    model: str
    seed: int
    first: str
    options: tuple[str, ...] = ("--fields", "+ffn")
    at: int = 32


F32 = ("--fields", "+ffn", "--weights", "f32")
# 131 keys: a part of 128 and one of three.
PARTS = ("--tokens", ",".join(str(7 * t % 500) for t in range(130)), "--fields", "+ffn")
# Where rounding absorbs a norm's other root or sum at nrm, the next norm that shows it is first.
DENSE = (
    Case("rsqrt", "dense-tiny", 7, "l0_nrm"),
    Case("rsqrt", "moe-48", 1, "l0_nrm"),
    Case("rsqrt", "moe-tiny", 0, "l0_knorm"),
    Case("rsqrt", "moe-tiny", 1, "l0_nrm", F32),
    Case("rsqrt", "hybrid-tiny", 0, "l0_gn"),
    Case("norm_tree", "moe-tiny", 0, "l0_nrm"),
    Case("norm_tree", "dense-tiny", 7, "l0_nrm"),
    Case("norm_tree", "moe-48", 3, "l0_nrm"),
    Case("norm_tree", "hybrid-tiny", 2, "l0_nrm"),
    Case("norm_tree", "moe-tiny", 7, "l0_qrope"),
    Case("fma", "moe-tiny", 7, "l0_kraw"),
    Case("fma", "moe-tiny", 0, "l0_kraw", F32),
    Case("fma", "hybrid-tiny", 0, "l0_qkv"),
    Case("split_k", "moe-tiny", 7, "l0_kraw"),
    # 128 columns are 4 blocks, each alone in its partial: down, with 8 blocks, is the first.
    Case("split_k", "dense-tiny", 7, "l0_down"),
    Case("split_k", "hybrid-tiny", 0, "l0_qkv"),
    Case("unpaired", "moe-tiny", 7, "l0_kraw"),
    Case("unpaired", "hybrid-tiny", 0, "l0_qkv"),
    Case("zero_point", "moe-tiny", 7, "l0_kraw"),
    Case("zero_point", "dense-tiny", 7, "l0_kraw"),
    Case("zero_point", "hybrid-tiny", 0, "l0_qkv"),
    Case("two_pass", "moe-tiny", 7, "l0_attn"),
    Case("two_pass", "dense-tiny", 7, "l0_attn"),
    Case("two_pass", "moe-tiny", 0, "l0_attn", F32),
    # Layers 0 to 2 are Gated DeltaNet.
    Case("two_pass", "hybrid-tiny", 0, "l3_attn"),
    Case("split_keys", "moe-tiny", 7, "l0_attn"),
    Case("split_keys", "moe-tiny", 7, "l0_attn", PARTS, 130),
    Case("split_keys", "moe-tiny", 0, "l0_attn", (*PARTS, "--weights", "f32"), 130),
    Case("split_keys", "hybrid-tiny", 0, "l3_attn"),
    Case("router_tree", "moe-tiny", 7, "l0_rlogits"),
    Case("router_tree", "moe-tiny", 0, "l0_rlogits", F32),
    Case("router_tree", "moe-tiny", 7, "l0_x", ()),
    Case("scale_assoc", "moe-tiny", 7, "l0_gate"),
    Case("scale_assoc", "moe-tiny", 7, "l0_x", ()),
    Case("fold_p", "moe-tiny", 7, "l0_down"),
    Case("fold_p", "moe-tiny", 7, "l0_x", ()),
)
# A variant of an op that a model does not have, or whose other order is the same one there.
WITHOUT_EFFECT = (
    *(Case(name, "moe-tiny", 0, "", F32) for name in ("split_k", "unpaired", "scale_assoc")),
    *(Case(name, "moe-tiny", 0, "", F32) for name in ("zero_point", "fold_p", "div_by_inverse")),
    *(Case(name, "dense-tiny", 7, "") for name in ("router_tree", "scale_assoc", "fold_p")),
    *(Case(name, "hybrid-tiny", 0, "") for name in ("router_tree", "scale_assoc", "fold_p")),
    Case("split_k", "moe-48", 7, ""),
)
# The exact tier is reached change by change: with each, the first difference moves down.
REPAIRS = (
    ("-libm_sincos-libm_exp", "nrm"),
    ("-rsqrt", "nrm"),
    ("-norm_tree", "kraw"),
    ("-fma", "kraw"),
    ("-split_k", "kraw"),
    ("-unpaired", "kraw"),
    ("-zero_point", "attn"),
    ("-two_pass", "attn"),
    ("-split_keys", "rlogits"),
    ("-router_tree", "gate"),
    ("-scale_assoc", "down"),
    ("-fold_p", None),
)


def case_name(case: Case) -> str:
    """``fold_p-moe-tiny-7-l0_x-f32``."""
    stored = "-f32" if "f32" in case.options else ""
    place = f"t{case.at}_{case.first}" if case.at != 32 else case.first or "same"
    return f"{case.variant}-{case.model}-{case.seed}-{place}{stored}"


def row(variant: str, model: str = "moe-tiny") -> Case:
    """The first row of the table for a variant on a model."""
    return next(case for case in DENSE if (case.variant, case.model) == (variant, model))


def diff(tmp_path: Path, dut: str, case: Case) -> tuple[Result, Tree]:
    """``parity diff`` of one decode step from the ref's state, and its tree."""
    path = tmp_path / "run.json"
    words = ["diff", "--ref", "cpu", "--dut", dut, "--prefill", "ref", "--n", "1"]
    words += ["--model", case.model, "--seed", str(case.seed), *case.options]
    result = run_cli(*words, "--json", str(path))
    assert path.exists(), result.stderr
    return result, Tree.from_json(path.read_text())


def check(tmp_path: Path, dut: str, case: Case) -> Tree:
    """The table's promise for one row: exit status, verdict and first key."""
    result, tree = diff(tmp_path, dut, case)
    if case.first:
        wanted = (1, "diverged", f"t{case.at}_{case.first}")
        assert {row.state for row in tree.inputs} <= {"same"}, "it is born there"
    else:
        wanted = (0, "same", None)
    assert (result.status, tree.verdict, tree.first) == wanted
    return tree


@pytest.mark.parametrize("case", [*DENSE, *WITHOUT_EFFECT], ids=case_name)
def test_variant_is_found_at_the_first_key_its_op_feeds(tmp_path: Path, case: Case) -> None:
    check(tmp_path, f"cpu:exact+{case.variant}", case)


def test_every_dense_variant_stands_in_the_table() -> None:
    sparse = {"libm_exp", "libm_sincos", "exp_via_double", "div_by_inverse"}
    assert {case.variant for case in DENSE} == set(VARIANTS) - sparse


PARTED = next(case for case in DENSE if case.at == 130)
FEW = (row("rsqrt", "dense-tiny"), *map(row, ("norm_tree", "fma", "two_pass", "fold_p")), PARTED)


@pytest.mark.parametrize("case", FEW, ids=case_name)
def test_same_key_with_the_emulated_kernels(tmp_path: Path, case: Case) -> None:
    tree = check(tmp_path, f"emu:exact+{case.variant}", case)
    assert tree.dut["emulated"] == "yes"


def test_emulated_stand_ins_are_labelled(tmp_path: Path) -> None:
    result, _ = diff(tmp_path, "emu:exact+rsqrt", row("rsqrt", "dense-tiny"))
    assert result.stdout.splitlines()[0].endswith("dut emulated, decode only")


# --- combinations ---------------------------------------------------------------------------------


def side(spec: str, run: Run) -> Side:
    """An opened engine."""
    parsed = parse_spec(spec, ["cpu", "emu"])
    assert isinstance(parsed, EngineSpec)
    return open_side("dut", parsed, run, Progress(quiet=True))


@cache
def reference(model: str, seed: int) -> tuple[Run, SideRun]:
    """One decode step of the ref (cpu, exact), every field dumped."""
    run = make_run(
        model=model,
        weights="q4",
        seed=seed,
        tokens=None,
        n=1,
        fields="+ffn",
        dump_prefill=False,
        hash_name="fnv1a64",
        prefill="ref",
    )
    return run, run_side(side("cpu", run), run)


@cache
def decoded(spec: str, model: str = "moe-tiny", seed: int = 0) -> SideRun:
    """The same step by another side, from the ref's state and fed its token."""
    run, ref = reference(model, seed)
    return run_side(side(spec, run), run, fed=ref.fed, start=ref.start)


def first_key(spec: str, model: str = "moe-tiny", seed: int = 0) -> str | None:
    """Tag of the first key in which that step differs from the ref's."""
    return compare_dumps(reference(model, seed)[1].dump, decoded(spec, model, seed).dump).first


PAIRS = [pair for pair in combinations(VARIANTS, 2) if pair not in EXCLUSIVE]


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_pair_is_found_where_the_earlier_one_is(pair: tuple[str, str]) -> None:
    alone = [first_key(f"cpu:exact+{name}") for name in pair]
    found = [Key.parse(tag) for tag in alone if tag is not None]
    wanted = min(found, key=KeyOrder()).tag if found else None
    assert first_key(f"cpu:exact+{'+'.join(pair)}") == wanted


@pytest.mark.parametrize("name", sorted(TIERS["fast"]))
def test_fast_without_one_variant(name: str) -> None:
    # Two of them feed the first norm of this model: it takes both out to move past it.
    assert first_key("cpu:fast") == "t32_l0_nrm"
    moved = "t32_l0_kraw" if name == "norm_tree" else "t32_l0_nrm"
    assert first_key(f"cpu:fast-{name}") == moved


@pytest.mark.parametrize("engine", ["cpu", "emu"])
def test_repairs_move_the_first_difference_down(engine: str) -> None:
    taken, seen = "", []
    for change, _ in REPAIRS:
        taken += change
        seen.append((change, first_key(f"{engine}:fast{taken}")))
    assert seen == [(change, f"t32_l0_{field}" if field else None) for change, field in REPAIRS]


ALL_AT_ONCE = "+".join(("exact", *(name for name in VARIANTS if name != "libm_exp")))
EVERY = ["fast", ALL_AT_ONCE, *(f"exact+{name}" for name in VARIANTS)]


@pytest.mark.parametrize("tier", EVERY)
def test_both_engines_give_a_variant_the_same_bits(tier: str) -> None:
    cpu, emu = decoded(f"cpu:{tier}"), decoded(f"emu:{tier}")
    tree = compare_dumps(cpu.dump, emu.dump)
    assert (tree.verdict, tree.counts.same) == ("same", tree.counts.total)


# --- names that exclude each other ----------------------------------------------------------------


@pytest.mark.parametrize("engine", ["cpu", "cuda", "emu"])
@pytest.mark.parametrize("tier", ["exact+libm_exp+exp_via_double", "fast+exp_via_double"])
def test_exclusive_pair_is_refused_by_name(engine: str, tier: str) -> None:
    result = run_cli("diff", "--ref", "cpu", "--dut", f"{engine}:{tier}")
    assert result.status == 2
    assert result.stdout == ""
    assert "libm_exp and exp_via_double exclude each other" in result.stderr


def test_exclusive_pair_runs_with_one_taken_out() -> None:
    assert first_key("cpu:fast-libm_exp+exp_via_double") == "t32_l0_nrm"


# --- the table itself turns red -------------------------------------------------------------------


@pytest.mark.parametrize("case", [*map(row, ("fma", "two_pass", "fold_p")), PARTED], ids=case_name)
def test_red_engine_that_ignores_its_variants(tmp_path: Path, case: Case) -> None:
    with pytest.raises(AssertionError, match="'same'"):
        check(tmp_path, f"tests.red.variant_engines:Deaf:exact+{case.variant}", case)


def test_red_engine_that_mistakes_one_variant_for_another(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="t32_l0_rlogits"):
        check(tmp_path, "tests.red.variant_engines:Mistaken:exact+scale_assoc", row("scale_assoc"))


def test_red_engine_whose_variant_reaches_too_far(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="t32_l0_kraw"):
        check(tmp_path, "tests.red.variant_engines:Leaking:exact+two_pass", row("two_pass"))
