"""Whole models with variants (contract 5) against the scalar oracle, every field, byte for byte.

Which op a variant touches, and which it leaves alone, is the decoder's choice: the ops' own tests
cannot see it. The models are small, since a fused product sum is slow in plain Python.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from parity.model.config import preset
from parity.model.generator import prompt_tokens
from parity.model.model import SyntheticModel
from parity.protocol import EngineSettings
from parity.variants import TIERS, VARIANTS
from parity_cpu import Engine as CpuEngine
from tests.engines.scalar_models import SEED, by_engine, first_difference, tensors_of
from tests.oracle import check, variants
from tests.oracle.model import Fields, OracleModel

Array = np.ndarray[Any, np.dtype[Any]]
SIZES = {"hidden": 160, "n_q": 2, "n_kv": 1, "head_dim": 32, "inter": 64, "vocab": 48, "layers": 1}
STORED = {"moe q4": ("moe-tiny", "q4"), "moe f32": ("moe-tiny", "f32")}
STORED |= {"dense q4": ("dense-tiny", "q4")}
FAST = TIERS["fast"]
NAMED: dict[str, variants.Names] = {
    **{name: frozenset({name}) for name in VARIANTS},
    "fast": FAST,
    "fast, other exp, inverse": FAST - {"libm_exp"} | {"exp_via_double", "div_by_inverse"},
    "fast, exact products": FAST - {"fma", "split_k", "unpaired", "zero_point", "norm_tree"},
}


def small(stored: str) -> SyntheticModel:
    """One layer, five blocks a row (split_k needs them), four experts of six or none."""
    name, weights = STORED[stored]
    experts = {"experts": 6, "top_k": 4} if name == "moe-tiny" else {}
    config = replace(preset(name, weights), name=f"small {stored}", **SIZES, **experts)
    return SyntheticModel(config, SEED)


class VariantModel(OracleModel):
    """The oracle with variants: each op gets its own, trees take the place of norms and router."""

    def __init__(self, model: SyntheticModel, names: variants.Names) -> None:
        super().__init__(model.config, tensors_of(model), self.varied)
        self.names = names

    def varied(self, op: str, args: check.Args) -> check.Outputs:
        """The op with those of the names that are its own."""
        own = self.names & set(variants.OF_OP.get(op, ()))
        return variants.run(op, args, own) if op in variants.OPS else check.oracle(op, args)

    def _norm(self, x: Array, name: str) -> Array:
        op = "norm_tree" if "norm_tree" in self.names else "rmsnorm"
        return self._op(op, x, self.tensors[name], self.eps)

    def _head_norm(self, heads: Array, name: str) -> Array:
        if "norm_tree" not in self.names:
            return super()._head_norm(heads, name)
        rows = heads.reshape(-1, heads.shape[-1])
        return self._op("norm_tree", rows, self.tensors[name], self.eps).reshape(heads.shape)

    def _router(self, layer: int, x: Array) -> Array:
        op = "router_tree" if "router_tree" in self.names else "f32_matvec"
        return self._op(op, self.tensors[f"layers.{layer}.router"], x)

    def _moe(self, layer: int, ores: Array, fnrm: Array, fields: Fields) -> Array:
        # fold_p means something for Q4_0 experts alone: f32 ones are summed as ever.
        named = self.names
        if f"layers.{layer}.experts.down" in self.tensors:
            self.names = named - {"fold_p"}
        x = super()._moe(layer, ores, fnrm, fields)
        self.names = named
        return x

    def _experts(self, name: str, ids: Array, topp: Array, x: Array) -> Array:
        """p is folded into down alone."""
        stored, named = self._stored(name), self.names
        if len(stored) == 1:
            return super()._experts(name, ids, topp, x)
        q, s_a = self.ops("quant16", (x[0],))
        if not name.endswith("down"):
            self.names = named - {"fold_p"}
        out = self._op("expert_matvec", *stored, ids, q[None], s_a[None], topp)
        self.names = named
        return out


def by_variants(stored: str, tokens: Sequence[int], names: variants.Names) -> Fields:
    """Every field of every position."""
    oracle, out = VariantModel(small(stored), names), OrderedDict[str, Array]()
    for token in tokens:
        out.update(oracle.step(token))
    return out


@cache
def measured(stored: str, names: variants.Names) -> tuple[list[int], Fields]:
    """Three positions of the CPU engine."""
    model = small(stored)
    tokens = prompt_tokens(SEED, 3, model.config.vocab)
    return tokens, by_engine(CpuEngine, model, tokens, EngineSettings(variants=names))[0]


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("name", NAMED)
def test_every_field_has_the_oracles_bytes(name: str, stored: str) -> None:
    tokens, fields = measured(stored, NAMED[name])
    assert first_difference(by_variants(stored, tokens, NAMED[name]), fields) is None


@pytest.mark.parametrize(
    ("name", "key"),
    [
        # By chance both give position 0 the same nrm.
        ("rsqrt", "t1_l0_nrm"),
        ("norm_tree", "t0_l0_knorm"),
        ("fma", "t0_l0_kraw"),
        ("split_k", "t0_l0_kraw"),
        ("unpaired", "t0_l0_kraw"),
        ("zero_point", "t0_l0_kraw"),
        ("two_pass", "t1_l0_attn"),
        ("split_keys", "t1_l0_attn"),
        ("router_tree", "t0_l0_rlogits"),
        ("scale_assoc", "t0_l0_gate"),
        ("fold_p", "t0_l0_down"),
    ],
)
def test_red_variant_shows_at_its_key(name: str, key: str) -> None:
    """The engine with a variant against the oracle without: the first field that it changes."""
    tokens, fields = measured("moe q4", NAMED[name])
    assert first_difference(by_variants("moe q4", tokens, frozenset()), fields) == key


def test_red_one_variant_of_fast_left_out() -> None:
    tokens, fields = measured("moe q4", FAST)
    wrong = by_variants("moe q4", tokens, FAST - {"scale_assoc"})
    assert first_difference(wrong, fields) == "t0_l0_gate"
