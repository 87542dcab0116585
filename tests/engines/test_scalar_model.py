"""Whole models against the scalar oracle: every field of every position, byte for byte.

This is the proof of the quantised tier: one other expert moves a logit by more than any bound that
rounding would need, so logits prove nothing there. The oracle reads no line of an engine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from parity.keys import Key
from parity.model.generator import prompt_tokens
from parity.model.model import Model, synthetic
from parity.protocol import Injection
from parity_cpu import Engine as CpuEngine
from parity_cuda import CudaEngine, EmuEngine
from tests.engines.scalar_models import (
    EDGES,
    ROW_SIZES,
    SEED,
    by_engine,
    by_oracle,
    edge_rows,
    edges_met,
    first_difference,
    q4_edge_rows,
    wrong_digests,
)
from tests.oracle import check, scalar, twin
from tests.oracle.model import Fields, Ops

ENGINES = [CpuEngine, EmuEngine, pytest.param(CudaEngine, marks=pytest.mark.gpu)]
MODELS: dict[str, Callable[[], Model]] = {
    "moe-tiny q4": lambda: synthetic("moe-tiny", SEED),
    "moe-tiny f32": lambda: synthetic("moe-tiny", SEED, "f32"),
    "dense-tiny q4": lambda: synthetic("dense-tiny", SEED),
    "dense-tiny f32": lambda: synthetic("dense-tiny", SEED, "f32"),
    "edge rows": edge_rows,
    "q4 edge rows": q4_edge_rows,
}


def tokens_of(name: str, model: Model) -> list[int]:
    """Small rows first: a later position attends to all earlier ones."""
    if name == "edge rows":
        return list(range(len(ROW_SIZES)))
    # Two normal positions stand between zeros and the largest.
    return [0, 1, 2, 5, 3] if name == "q4 edge rows" else prompt_tokens(SEED, 3, model.config.vocab)


@cache
def expected(name: str) -> tuple[Model, list[int], Fields]:
    """The model, its tokens and the scalar oracle's fields."""
    model = MODELS[name]()
    tokens = tokens_of(name, model)
    return model, tokens, by_oracle(model, tokens)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_field_has_the_oracles_bytes(engine: Any, name: str) -> None:
    """Keys and their order, dtypes, shapes, bytes and digests."""
    model, tokens, ref = expected(name)
    dut, entries = by_engine(engine, model, tokens)
    assert first_difference(ref, dut) is None
    assert wrong_digests(entries, ref) == []
    assert len(ref) == len(tokens) * _keys_a_position(name, model)
    assert all(entry.nonfinite is None for entry in entries)


def _keys_a_position(name: str, model: Model) -> int:
    """11 + 8 fields a layer, 2 fewer on an f32 cache, 3 fewer in a dense layer; 2 after them."""
    fields = 19 - 2 * ("f32" in name) - 3 * ("dense" in name)
    return model.config.layers * fields + 2


@pytest.mark.parametrize("name", MODELS)
def test_second_writing_agrees(name: str) -> None:
    """The vectorised twin without a fault: the reds below are the faults' own."""
    model, tokens, ref = expected(name)
    assert first_difference(ref, by_oracle(model, tokens, twin.run)) is None


@pytest.mark.parametrize("name", ["moe-tiny q4", "dense-tiny f32"])
def test_frequencies_are_the_contracts(name: str) -> None:
    """The table of the loaded model is 1.7's."""
    model = MODELS[name]()
    table = scalar.inv_freq(model.config.theta, model.config.head_dim)
    assert table.tobytes() == model.tensor("inv_freq").tobytes()


# --- the edges of 1.4 and 1.6 --------------------------------------------------------------------


def edges(name: str) -> dict[str, set[str]]:
    """Edges that the model's own quantising meets, by op."""
    met: dict[str, set[str]] = {"quant8": set(), "quant16": set()}

    def watched(op: str, args: check.Args) -> check.Outputs:
        outputs = twin.run(op, args)
        if op in met:
            met[op] |= edges_met(op, args[0], outputs[1])
        return outputs

    model = MODELS[name]()
    by_oracle(model, tokens_of(name, model), watched)
    return met


def test_edge_rows_meet_every_edge() -> None:
    """Zero rows, scale 0 beside values, subnormal scales, clamped codes, huge rows: both ops."""
    assert edges("edge rows") == {"quant8": set(EDGES), "quant16": set(EDGES)}
    assert edges("q4 edge rows") == {"quant8": {"zero"}, "quant16": {"zero"}}


def test_red_a_plain_model_meets_none() -> None:
    assert edges("moe-tiny q4") == {"quant8": set(), "quant16": set()}


# --- planted differences -------------------------------------------------------------------------


def swapped(op_name: str, fault: str) -> Ops:
    """The twin's ops with one of them wrong."""
    return lambda op, args: twin.run(op, args, fault if op == op_name else None)


PLANTED = [
    ("moe-tiny q4", "embed", "token index one too high", "t0_l0_nrm"),
    ("moe-tiny q4", "rmsnorm", "weight times r first", "t0_l0_nrm"),
    ("moe-tiny q4", "q4_matvec", "unpaired", "t0_l0_kraw"),
    ("moe-tiny q4", "q4_matvec", "zero point out of the sum", "t0_l0_kraw"),
    ("moe-tiny q4", "headnorm", "blocks of 8", "t0_l0_knorm"),
    ("moe-tiny q4", "quant8", "truncated", "t0_l0_k"),
    ("moe-tiny q4", "rope", "rotated the other way", "t1_l0_k"),
    ("moe-tiny q4", "attention_int8", "two passes, summed by tree", "t1_l1_attn"),
    ("moe-tiny q4", "f32_matvec", "descending", "t0_l0_rlogits"),
    ("moe-tiny q4", "router_topk", "never renormalised", "t0_l0_topp"),
    ("moe-tiny q4", "quant16", "truncated", "t0_l0_gate"),
    ("moe-tiny q4", "expert_matvec", "scales multiplied first", "t0_l0_gate"),
    ("moe-tiny q4", "combine", "ranks descending", "t0_l0_x"),
    ("moe-tiny f32", "embed_f32", "token index one too high", "t0_l0_nrm"),
    ("moe-tiny f32", "f32_matvec", "four partial sums", "t0_l0_kraw"),
    ("moe-tiny f32", "rope", "rotated the other way", "t1_l0_k"),
    ("moe-tiny f32", "attention_f32", "newest key left out", "t1_l0_attn"),
    ("moe-tiny f32", "expert_f32_matvec", "descending", "t0_l0_gate"),
    # Four blocks a row have no order to lose; the eight of down have.
    ("dense-tiny q4", "q4_matvec", "four partial sums", "t0_l0_down"),
    ("dense-tiny q4", "attention_int8", "heads interleaved", "t0_l0_attn"),
    ("dense-tiny q4", "swiglu", "x over 1 + exp", "t0_l0_act"),
    ("dense-tiny f32", "f32_matvec", "descending", "t0_l0_kraw"),
    ("dense-tiny f32", "attention_f32", "fused", "t1_l0_attn"),
    ("edge rows", "quant8", "floor under the scale", "t0_l0_ks"),
    ("edge rows", "quant8", "subnormals flushed", "t1_l0_k"),
    ("edge rows", "quant8", "clamped after conversion", "t1_l0_v"),
    ("edge rows", "quant8", "zero guard on amax", "t1_l1_v"),
    ("edge rows", "quant16", "subnormals flushed", "t1_l0_gate"),
    ("edge rows", "quant16", "clamped after conversion", "t1_l0_gate"),
    ("edge rows", "rmsnorm", "mean taken in binary64", "t2_final_normed"),
    ("q4 edge rows", "quant8", "floor under the scale", "t0_l0_ks"),
    ("q4 edge rows", "embed", "subnormal scales flushed", "t2_l0_nrm"),
]


@cache
def measured(name: str) -> Fields:
    """The CPU engine's fields."""
    model, tokens, _ = expected(name)
    return by_engine(CpuEngine, model, tokens)[0]


@pytest.mark.parametrize(
    ("name", "op", "fault", "key"), PLANTED, ids=[f"{n} {o}: {f}" for n, o, f, _ in PLANTED]
)
def test_red_wrong_op_shows_at_its_key(name: str, op: str, fault: str, key: str) -> None:
    """One op of the oracle swapped for a wrong variant; the engine's fields are the ref."""
    model, tokens, _ = expected(name)
    wrong = by_oracle(model, tokens, swapped(op, fault))
    assert first_difference(measured(name), wrong) == key


@pytest.mark.parametrize("tag", ["t0_l0_kraw", "t1_l3_topp", "t2_l1_down", "t2_logits"])
def test_red_one_element_of_the_engine_moved(tag: str) -> None:
    model, tokens, ref = expected("moe-tiny q4")
    moved = Injection(Key.parse(tag), 1)
    dut, entries = by_engine(CpuEngine, model, tokens, inject=moved)
    assert first_difference(ref, dut) == tag
    assert wrong_digests(entries, ref)[0] == tag


def test_red_keys_missing_or_in_another_order() -> None:
    _, _, ref = expected("dense-tiny f32")
    less = Fields(list(ref.items())[:-1])
    assert first_difference(ref, less) == "174 keys, then 173"
    other = Fields([("t0_l0_kraw", ref["t0_l0_kraw"]), *ref.items()])
    assert first_difference(ref, other) == "t0_l0_nrm"
    wide = Fields(ref)
    wide["t1_l2_act"] = ref["t1_l2_act"].astype(np.float64)
    assert first_difference(ref, wide) == "t1_l2_act"
