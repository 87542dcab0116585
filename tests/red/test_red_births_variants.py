"""Every variant of contract 5 on every family: born are the fields whose op it touches, no others.

The sparse ones (libm_exp and so on) change a few results in a million: there the very keys are
predicted, by a scalar count over the ref's inputs (prediction.py). The libm_* cases were pinned
with glibc 2.36; another C library may need other seeds.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from parity.tree import Cause, KeyRow, KeyState
from parity.variants import VARIANTS
from tests.red import prediction
from tests.red.birth_pairs import births, born, born_fields, compared, run_of
from tests.red.prediction import SPARSE

NORMS = "nrm knorm qrope fnrm final_normed"
Q4 = "kraw v vs qrope ores logits"
HYBRID_Q4 = "qkv z kraw v qrope gated ores gate up down logits"
EXPS = "attn topk topp act"
HYBRID_EXPS = "conv beta g gn attn gated act"
CODES = "k v attn gate up down"
# Fields whose op a variant touches; one that is not named has no effect on that family.
TOUCHED = {
    "moe-tiny": {
        **dict.fromkeys(("rsqrt", "norm_tree"), NORMS),
        **dict.fromkeys(("split_k", "unpaired", "zero_point"), Q4),
        **dict.fromkeys(("libm_exp", "exp_via_double"), EXPS),
        "fma": f"{Q4} rlogits",
        "libm_sincos": "k ks qrope",
        **dict.fromkeys(("two_pass", "split_keys"), "attn"),
        "router_tree": "rlogits",
        "scale_assoc": "gate up down",
        "fold_p": "down x",
        "div_by_inverse": CODES,
    },
    "hybrid-tiny": {
        **dict.fromkeys(("rsqrt", "norm_tree"), f"{NORMS} gn"),
        **dict.fromkeys(("split_k", "unpaired", "zero_point"), HYBRID_Q4),
        **dict.fromkeys(("libm_exp", "exp_via_double"), HYBRID_EXPS),
        "fma": f"{HYBRID_Q4} beta g",
        "libm_sincos": "k qrope",
        **dict.fromkeys(("two_pass", "split_keys"), "attn"),
    },
    "dense-tiny": {
        **dict.fromkeys(("rsqrt", "norm_tree"), NORMS),
        **dict.fromkeys(("fma", "unpaired", "zero_point"), f"{Q4} gate up down"),
        **dict.fromkeys(("libm_exp", "exp_via_double"), "attn act"),
        "split_k": "down",
        "libm_sincos": "k ks qrope",
        **dict.fromkeys(("two_pass", "split_keys"), "attn"),
        "div_by_inverse": "k v attn",
    },
}


class Case(NamedTuple):
    """A pinned run; ``first``: the first birth; ``absorbed``: fields that it touches and whose
    bytes are the same there (int8 codes of V)."""

    model: str
    variant: str
    seed: int
    n: int
    first: str
    absorbed: str = ""


DENSE = (
    Case("moe-tiny", "rsqrt", 0, 2, "t3_l0_knorm"),
    Case("moe-tiny", "norm_tree", 0, 2, "t3_l0_qrope"),
    Case("moe-tiny", "fma", 0, 2, "t3_l0_kraw", "v"),
    Case("moe-tiny", "split_k", 0, 2, "t3_l0_kraw", "v"),
    Case("moe-tiny", "unpaired", 0, 2, "t3_l0_kraw", "v"),
    Case("moe-tiny", "zero_point", 0, 2, "t3_l0_kraw", "v"),
    Case("moe-tiny", "two_pass", 0, 2, "t3_l0_attn"),
    Case("moe-tiny", "split_keys", 0, 2, "t3_l0_attn"),
    Case("moe-tiny", "router_tree", 0, 2, "t3_l0_rlogits"),
    Case("moe-tiny", "scale_assoc", 0, 2, "t3_l0_gate"),
    Case("moe-tiny", "fold_p", 0, 2, "t3_l0_down"),
    Case("hybrid-tiny", "rsqrt", 2, 2, "t3_l0_gn"),
    Case("hybrid-tiny", "norm_tree", 1, 2, "t3_l0_gn"),
    Case("hybrid-tiny", "fma", 0, 2, "t3_l0_qkv"),
    Case("hybrid-tiny", "split_k", 0, 2, "t3_l0_qkv"),
    Case("hybrid-tiny", "unpaired", 0, 2, "t3_l0_qkv"),
    Case("hybrid-tiny", "zero_point", 0, 2, "t3_l0_qkv"),
    Case("hybrid-tiny", "two_pass", 0, 2, "t3_l3_attn"),
    Case("hybrid-tiny", "split_keys", 0, 2, "t3_l3_attn"),
    Case("hybrid-tiny", "libm_exp", 2, 12, "t3_l0_conv", "beta g"),
    Case("hybrid-tiny", "exp_via_double", 2, 12, "t4_l4_act", "beta g gated"),
    Case("hybrid-tiny", "libm_sincos", 0, 12, "t12_l3_k"),
    Case("dense-tiny", "rsqrt", 2, 2, "t3_l0_qrope"),
    Case("dense-tiny", "norm_tree", 0, 2, "t3_l0_knorm"),
    Case("dense-tiny", "fma", 0, 2, "t3_l0_kraw", "v"),
    Case("dense-tiny", "split_k", 0, 2, "t3_l0_down"),
    Case("dense-tiny", "unpaired", 0, 2, "t3_l0_kraw", "v"),
    Case("dense-tiny", "zero_point", 0, 2, "t3_l0_kraw", "v"),
    Case("dense-tiny", "two_pass", 0, 2, "t3_l0_attn"),
    Case("dense-tiny", "split_keys", 0, 2, "t3_l0_attn"),
)
# (model, variant, seed, steps): where it changes a key at all.
PREDICTED = (
    ("moe-tiny", "libm_exp", 0, 2),
    ("moe-tiny", "exp_via_double", 4, 2),
    ("moe-tiny", "libm_sincos", 0, 2),
    ("moe-tiny", "div_by_inverse", 1, 3),
    ("dense-tiny", "libm_exp", 0, 3),
    ("dense-tiny", "exp_via_double", 5, 2),
    ("dense-tiny", "libm_sincos", 4, 4),
    ("dense-tiny", "div_by_inverse", 61, 8),
)


def name(case: Case) -> str:
    """``moe-tiny-fma``."""
    return f"{case.model}-{case.variant}"


@pytest.mark.parametrize("case", DENSE, ids=name)
def test_born_are_the_fields_it_touches(case: Case) -> None:
    run = run_of(case.model, seed=case.seed, n=case.n)
    tree = compared(f"cpu:exact+{case.variant}", run)
    touched = set(TOUCHED[case.model][case.variant].split())
    assert born_fields(tree) == touched - set(case.absorbed.split())
    first = births(tree)[0]
    assert (first.key, first.clean, first.how) == (case.first, True, "replay")
    check_rows(tree.keys, born(tree))


def check_rows(rows: list[KeyRow], found: list[str]) -> None:
    """Every differing key is born or inherited from a birth, every masked one too."""
    for row in rows:
        if row.state == KeyState.DIFFERS:
            assert row.cause == (Cause.BORN if row.key in found else Cause.INHERITED)
        assert row.cause in ("", Cause.BORN) or row.source in found


@pytest.mark.parametrize(("model", "variant", "seed", "n"), PREDICTED)
def test_born_are_the_predicted_keys(model: str, variant: str, seed: int, n: int) -> None:
    run = run_of(model, seed=seed, n=n, fields="+ffn")
    tree = compared(f"cpu:exact+{variant}", run)
    wanted = [
        key.tag
        for step in prediction.observe(run)
        for key, _, value in prediction.redo(run.model, step, SPARSE[variant])
        if value.tobytes() != step.tensors[key].tobytes()
    ]
    assert wanted
    assert born(tree) == wanted


def test_every_variant_stands_in_the_tables() -> None:
    told = {(case.model, case.variant) for case in DENSE} | {row[:2] for row in PREDICTED}
    assert told == {(model, variant) for model, row in TOUCHED.items() for variant in row}
    assert set(TOUCHED["moe-tiny"]) == set(VARIANTS)


@pytest.mark.parametrize(("model", "variant"), [("moe-tiny", "fold_p"), ("hybrid-tiny", "rsqrt")])
def test_same_births_with_the_emulated_kernels(model: str, variant: str) -> None:
    run = run_of(model, seed=2, n=1)
    cpu, emu = (born(compared(f"{engine}:exact+{variant}", run)) for engine in ("cpu", "emu"))
    assert cpu == emu


def test_two_variants_together_are_both_named() -> None:
    run = run_of("moe-tiny", n=1)
    alone = [set(born(compared(f"cpu:exact+{name}", run))) for name in ("two_pass", "router_tree")]
    assert set(born(compared("cpu:exact+two_pass+router_tree", run))) == alone[0] | alone[1]


def test_variant_taken_out_is_no_birthplace() -> None:
    """fast without one variant against the exact ref: its fields are born by others alone."""
    run = run_of("moe-tiny", n=1)
    assert "attn" in born_fields(compared("cpu:fast", run))
    assert "attn" not in born_fields(compared("cpu:fast-two_pass-split_keys-libm_exp", run))


def test_keys_in_two_parts_are_born_in_attention_alone() -> None:
    """131 keys: two_pass, which cuts nothing, is another order."""
    run = run_of("moe-tiny", n=1, tokens=",".join(str(7 * t % 500) for t in range(130)))
    exact, uncut = (
        compared("cpu:exact+split_keys", run, ref) for ref in ("cpu:exact", "cpu:exact+two_pass")
    )
    assert born_fields(exact) == born_fields(uncut) == {"attn"}
    assert births(exact)[0].key == births(uncut)[0].key == "t130_l0_attn"


def test_both_sides_with_the_variant_have_no_births() -> None:
    run = run_of("moe-tiny", n=1)
    tree = compared("cpu:exact+fold_p", run, ref="cpu:exact+fold_p")
    assert (tree.verdict, tree.births) == ("same", None)


def test_variant_s_own_input_is_an_input() -> None:
    """With fold_p down reads the probabilities: what they bring is inherited, not born."""
    run = run_of("moe-tiny", n=1, fields="+ffn")
    ref = "cpu:exact+fold_p"
    tree = compared("tests.red.planted:Planted:exact+fold_p@keys=t3_l1_topp", run, ref=ref)
    assert born(tree) == ["t3_l1_topp"]
    assert {(row.key, row.source) for row in tree.keys if row.cause == Cause.INHERITED} >= {
        ("t3_l1_down", "t3_l1_topp")
    }
