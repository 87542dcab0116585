"""Sparse variants of contract 5: the first key is the one that a scalar count predicts.

libm_exp, libm_sincos, exp_via_double and div_by_inverse change a few results in a million. The
count (prediction.py) is over the ref's dumped inputs; where it finds nothing the run ends the
same. The libm_* cases were pinned with glibc 2.36; another C library may need other seeds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from parity.cli.options import make_run
from parity.keys import Key
from parity.runs.run import Run
from parity.tree import Tree
from tests.cli_runner import run_cli
from tests.red import prediction
from tests.red.prediction import EXACT, SPARSE, Functions


class Case(NamedTuple):
    """A sparse variant on a pinned model; ``first``: the key predicted, or None."""

    variant: str
    model: str
    seed: int
    n: int
    first: str | None


FOUND = (
    Case("libm_exp", "moe-tiny", 0, 1, "t32_l0_act"),
    Case("libm_exp", "moe-tiny", 1, 1, "t32_l2_attn"),
    Case("libm_exp", "dense-tiny", 0, 4, "t33_l2_act"),
    Case("libm_exp", "moe-48", 1, 1, "t32_l8_attn"),
    Case("exp_via_double", "moe-tiny", 3, 4, "t35_l0_attn"),
    Case("exp_via_double", "dense-tiny", 0, 4, "t33_l2_act"),
    Case("exp_via_double", "moe-48", 0, 1, "t32_l3_act"),
    Case("exp_via_double", "moe-48", 4, 1, "t32_l0_attn"),
    Case("libm_sincos", "moe-tiny", 2, 1, "t32_l0_qrope"),
    Case("libm_sincos", "moe-tiny", 4, 1, "t32_l1_qrope"),
    Case("libm_sincos", "dense-tiny", 16, 4, "t34_l0_ks"),
    Case("div_by_inverse", "moe-tiny", 0, 4, "t35_l0_down"),
    Case("div_by_inverse", "moe-tiny", 3, 4, "t33_l2_gate"),
    Case("div_by_inverse", "dense-tiny", 53, 16, "t45_l2_attn"),
    Case("div_by_inverse", "dense-tiny", 64, 16, "t46_l0_k"),
)
NOTHING = (
    Case("libm_exp", "dense-tiny", 4, 1, None),
    Case("exp_via_double", "dense-tiny", 1, 4, None),
    Case("libm_sincos", "moe-48", 1, 1, None),
    Case("div_by_inverse", "moe-tiny", 2, 4, None),
    Case("div_by_inverse", "dense-tiny", 0, 4, None),
)
# Changed results that no key shows: rounding absorbs each before it reaches one.
ABSORBED = (
    Case("libm_exp", "dense-tiny", 1, 4, None),
    Case("exp_via_double", "moe-tiny", 0, 4, None),
    Case("exp_via_double", "moe-tiny", 2, 4, None),
)


def case_name(case: Case) -> str:
    """``libm_exp-moe-tiny-0-t32_l0_act``."""
    return f"{case.variant}-{case.model}-{case.seed}-{case.first or 'same'}"


def run_of(case: Case) -> Run:
    """The settings that ``diff`` below gives on the command line."""
    return make_run(
        model=case.model,
        weights="q4",
        seed=case.seed,
        tokens=None,
        n=case.n,
        fields="+ffn",
        dump_prefill=False,
        hash_name="fnv1a64",
        prefill="ref",
    )


def diff(tmp_path: Path, engine: str, case: Case) -> tuple[int, Tree]:
    """``parity diff`` of the decode steps from the ref's state, and its tree."""
    path = tmp_path / "run.json"
    words = ["diff", "--ref", "cpu", "--dut", f"{engine}:exact+{case.variant}", "--prefill", "ref"]
    words += ["--model", case.model, "--seed", str(case.seed), "--n", str(case.n)]
    result = run_cli(*words, "--fields", "+ffn", "--json", str(path))
    assert path.exists(), result.stderr
    return result.status, Tree.from_json(path.read_text())


def ends(status: int, tree: Tree) -> tuple[int, str, str | None]:
    """What a case promises."""
    return status, str(tree.verdict), tree.first


@pytest.mark.parametrize("case", FOUND, ids=case_name)
def test_first_key_is_the_predicted_one(tmp_path: Path, case: Case) -> None:
    predicted = prediction.predict(run_of(case), case.variant)
    assert predicted.changed >= 1
    assert predicted.first == case.first
    status, tree = diff(tmp_path, "cpu", case)
    assert ends(status, tree) == (1, "diverged", predicted.first)
    assert {row.state for row in tree.inputs} <= {"same"}


@pytest.mark.parametrize("case", NOTHING, ids=case_name)
def test_no_changed_result_ends_the_same(tmp_path: Path, case: Case) -> None:
    assert prediction.predict(run_of(case), case.variant).changed == 0
    assert ends(*diff(tmp_path, "cpu", case)) == (0, "same", None)


@pytest.mark.parametrize("case", ABSORBED, ids=case_name)
def test_changed_results_that_no_key_shows_end_the_same(tmp_path: Path, case: Case) -> None:
    predicted = prediction.predict(run_of(case), case.variant)
    assert predicted.changed >= 1
    assert predicted.first is None
    assert ends(*diff(tmp_path, "cpu", case)) == (0, "same", None)


@pytest.mark.parametrize("case", [FOUND[0], FOUND[4], FOUND[9], FOUND[12]], ids=case_name)
def test_emulated_kernels_show_the_predicted_key(tmp_path: Path, case: Case) -> None:
    predicted = prediction.predict(run_of(case), case.variant)
    assert ends(*diff(tmp_path, "emu", case)) == (1, "diverged", predicted.first)


def test_every_sparse_variant_has_both_cases() -> None:
    assert {case.variant for case in FOUND} == {case.variant for case in NOTHING} == set(SPARSE)


@pytest.mark.parametrize(("model", "seed"), [("moe-tiny", 5), ("dense-tiny", 5)])
def test_counting_reproduces_the_ref_with_the_contract_s_functions(model: str, seed: int) -> None:
    run = run_of(Case("", model, seed, 2, None))
    seen = set()
    for step in prediction.observe(run):
        for key, changed, value in prediction.redo(run.model, step, EXACT):
            assert changed == 0
            assert value.dtype == step.tensors[key].dtype
            assert value.shape == step.tensors[key].shape
            assert value.tobytes() == step.tensors[key].tobytes(), key
            seen.add(key.field)
    moe = {"topk", "topp", "gate", "up", "down"} if model == "moe-tiny" else set()
    assert seen == {"k", "ks", "v", "vs", "qrope", "attn", "act"} | moe


# --- the count itself turns red -------------------------------------------------------------------


def next_float(x: float) -> float:
    """One ULP up."""
    return float(np.nextafter(np.float32(x), np.float32(np.inf)))


@pytest.mark.parametrize("name", ["exp", "cos", "sin"])
def test_red_function_one_ulp_off_is_predicted_at_once(name: str) -> None:
    exact = getattr(EXACT, name)
    off = replace(EXACT, **{name: lambda x: next_float(exact(x))})
    found = prediction.compare_functions(run_of(Case("", "moe-tiny", 7, 1, None)), off)
    assert found.changed > 100
    assert found.first is not None
    layer, field = Key.parse(found.first).layer, Key.parse(found.first).field
    assert (layer, field) in {(0, "attn"), (0, "ks"), (0, "k"), (0, "qrope")}


def test_red_truncating_quotient_is_predicted_at_the_first_code() -> None:
    cut = Functions(quotient=lambda x, scale: np.trunc(x / scale))
    found = prediction.compare_functions(run_of(Case("", "moe-tiny", 7, 1, None)), cut)
    assert found.first == "t32_l0_k"
    assert set(found.by_field) == {"k", "v", "attn", "gate", "down"}


def test_red_moved_input_is_not_reproduced() -> None:
    run = run_of(Case("", "moe-tiny", 7, 1, None))
    (step,) = prediction.observe(run)
    key = Key(32, 1, "gate")
    step.tensors[key] = np.nextafter(step.tensors[key], np.float32(np.inf))
    wrong = [
        other.tag
        for other, _, value in prediction.redo(run.model, step, EXACT)
        if value.tobytes() != step.tensors[other].tobytes()
    ]
    assert wrong == ["t32_l1_gate", "t32_l1_act"]
