"""What published models have beside the presets' shapes, against the scalar oracle: bytes of every
field, M rows at once, and planted faults at their keys."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from parity.errors import InputError, ParityBug
from parity.model.checks import wanted_tensors
from parity.model.generator import prompt_tokens
from parity.model.model import Model
from parity.protocol import EngineSettings
from parity_cpu import Engine as CpuEngine
from parity_cuda import CudaEngine, EmuEngine
from tests.engines.real_models import (
    MODELS,
    POSITIONS,
    SEED,
    by_engine,
    by_oracle,
    changed,
    held,
    mixed,
    quick,
    with_rates,
)
from tests.engines.scalar_models import Held, first_difference, tensors_of
from tests.oracle import check, twin
from tests.oracle.model import Fields, Ops

GPU = pytest.param(CudaEngine, marks=pytest.mark.gpu)


@cache
def expected(name: str) -> tuple[Model, list[int], Fields]:
    """The model, its tokens and the scalar oracle's fields."""
    model = MODELS[name]()
    tokens = prompt_tokens(SEED, POSITIONS, model.config.ids)
    return model, tokens, by_oracle(model, tokens)


@pytest.mark.parametrize("at_once", [False, True], ids=["steps", "rows"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("engine", [CpuEngine, EmuEngine, GPU])
def test_every_field_has_the_oracles_bytes(engine: Any, name: str, at_once: bool) -> None:
    """Keys and their order, dtypes, shapes, bytes and digests."""
    model, tokens, ref = expected(name)
    assert first_difference(ref, by_engine(engine, model, tokens, at_once)) is None


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        # +s and +ffn: 14 + 10, or 10 + 10 in a layer with full attention, and 2.
        ("next-tiny q4", 6 * 24 + 2 * 20 + 2),
        ("shared moe q4", 4 * 21 + 2),
        ("dense layers q4", 2 * 19 + 2 * 16 + 2),
        ("dense layers, shared, f32", 2 * 19 + 2 * 14 + 2),
        ("listed full layers", 2 * 24 + 2 * 20 + 2),
        ("all f32 of a file", 4 * 14 + 2),
    ],
)
def test_keys_are_counted(name: str, keys: int) -> None:
    assert len(expected(name)[2]) == POSITIONS * keys


def test_the_gate_of_the_shared_expert_spreads() -> None:
    """Neither 0 nor 1 nor 1/2 everywhere: a gate that is not applied shows."""
    fields = expected("next-tiny q4")[2]
    gates = np.array([value[0] for key, value in fields.items() if key.endswith("_gs")])
    assert gates.size == 8 * POSITIONS
    assert gates.min() < 0.4
    assert gates.max() > 0.6


# --- planted differences --------------------------------------------------------------------------


def swapped(op_name: str, fault: str) -> Ops:
    """The oracle's ops with one of them wrong."""
    return lambda op, args: twin.run(op, args, fault) if op == op_name else quick(op, args)


PLANTED = [
    ("next-tiny q4", "combine_shared", "shared expert first", "t0_l0_x"),
    ("next-tiny q4", "combine_shared", "shared expert after the residual", "t0_l0_x"),
    ("next-tiny q4", "combine_shared", "gate not applied", "t0_l0_x"),
    ("next-tiny q4", "combine_shared", "shared expert left out", "t0_l0_x"),
    ("next-tiny q4", "combine_shared", "ranks descending", "t0_l0_x"),
    ("next-tiny q4", "shared_gate", "not squashed", "t0_l0_gs"),
    ("next-tiny q4", "shared_gate", "silu", "t0_l0_gs"),
    ("next-tiny q4", "router_topk", "never renormalised", "t0_l0_topp"),
    ("next-tiny f32", "combine_shared", "gate times ffn too", "t0_l0_x"),
    ("shared moe q4", "combine_shared", "shared expert first", "t0_l0_x"),
    ("dense layers q4", "expert_matvec", "scales multiplied first", "t0_l1_gate"),
    ("dense layers q4", "combine", "ranks descending", "t0_l1_x"),
    ("f32 head", "expert_f32_matvec", "descending", "t0_l0_down"),
    ("f32 embedding", "embed_f32", "token index one too high", "t0_l0_nrm"),
    ("tied q4", "embed", "token index one too high", "t0_l0_nrm"),
]


@cache
def measured(name: str) -> Fields:
    """The CPU engine's fields."""
    model, tokens, _ = expected(name)
    return by_engine(CpuEngine, model, tokens)


@pytest.mark.parametrize(
    ("name", "op", "fault", "key"), PLANTED, ids=[f"{n} {o}: {f}" for n, o, f, _ in PLANTED]
)
def test_red_wrong_op_shows_at_its_key(name: str, op: str, fault: str, key: str) -> None:
    model, tokens, _ = expected(name)
    assert first_difference(measured(name), by_oracle(model, tokens, swapped(op, fault))) == key


def replaced(model: Model, **tensors: np.ndarray) -> Held:
    """The model with some tensors exchanged; ``__`` stands for a dot."""
    given = {name.replace("__", "."): array for name, array in tensors.items()}
    return Held(model.config, {**tensors_of(model), **given})


@pytest.mark.parametrize(
    ("name", "tensor", "key"),
    [
        ("next-tiny q4", "layers.1.shared_gate", "t0_l1_gs"),
        ("next-tiny q4", "layers.3.shared.down.qs", "t0_l3_sh"),
        ("next-tiny q4", "layers.3.shared.up.d", "t0_l3_sh"),
        ("dense layers q4", "layers.2.mlp.gate.qs", "t0_l2_gate"),
        ("rates", "layers.1.rates", "t0_l1_g"),
        ("f32 head", "lm_head", "t0_logits"),
        # The head of a tied model is the embedding: both ends show it, the first one first.
        ("tied q4", "embed.d", "t0_l0_nrm"),
    ],
)
@pytest.mark.parametrize("engine", [CpuEngine, EmuEngine])
def test_red_one_other_tensor_shows_where_it_is_read(
    engine: Any, name: str, tensor: str, key: str
) -> None:
    """Every new tensor is read, by the layer that owns it and at the field that it makes."""
    model, tokens, ref = expected(name)
    array = model.tensor(tensor).copy()
    array[...] = array[::-1] if array.shape[0] > 1 else array[:, ::-1]
    spoiled = replaced(model, **{tensor.replace(".", "__"): array})
    assert first_difference(ref, by_engine(engine, spoiled, tokens)) == key


def test_red_a_tied_head_that_is_another_matrix() -> None:
    """Logits of a tied model come from the embedding's stored bytes."""
    model, tokens, ref = expected("tied q4")
    own = changed("dense-tiny")
    tensors = {**tensors_of(own), **tensors_of(model)}
    untied = Held(own.config, tensors)
    assert first_difference(ref, by_engine(CpuEngine, untied, tokens)) == "t0_logits"


# --- what is refused before anything runs ---------------------------------------------------------


def refused(model: Model, error: type[Exception] = InputError) -> str:
    """What both engines say; nothing was loaded."""
    said = set()
    for engine in (CpuEngine, EmuEngine):
        with pytest.raises(error) as raised:
            engine(EngineSettings()).load(model, 4)
        said.add(getattr(raised.value, "message", str(raised.value)))
    (text,) = said
    return text


def without(model: Model, name: str) -> Held:
    tensors = tensors_of(model)
    del tensors[name]
    return Held(model.config, tensors)


def test_red_a_missing_tensor_is_named() -> None:
    model = changed("next-tiny", layers=4)
    for name in ("layers.2.shared_gate", "layers.3.shared.up.qs", "layers.1.a_log", "lm_head.d"):
        told = "lm_head" if name == "lm_head.d" else name
        assert refused(without(model, name)) == f"weight {told} of next-tiny is missing"


def test_red_a_layer_of_another_width_is_named() -> None:
    """A dense layer's matrices are dense_inter wide, an expert's inter, a shared one's its own."""
    config = changed("moe-tiny", dense_layers=(1,), dense_inter=224, shared_inter=160).config
    narrow = changed("moe-tiny", dense_layers=(1,), dense_inter=192, shared_inter=160)
    said = refused(Held(config, tensors_of(narrow)))
    assert said == "weight layers.1.mlp.gate.d is f16[192,5], the model needs f16[224,5]"
    narrow = changed("moe-tiny", dense_layers=(1,), dense_inter=224, shared_inter=96)
    said = refused(Held(config, tensors_of(narrow)))
    assert said == "weight layers.0.shared.gate.d is f16[96,5], the model needs f16[160,5]"


def test_red_rates_beside_a_log_are_refused() -> None:
    model = with_rates(changed("next-tiny", layers=4))
    both = {**tensors_of(model), "layers.0.a_log": np.zeros(6, np.float32)}
    assert refused(Held(model.config, both)) == "both layers.0.a_log and layers.0.rates are there"


def test_red_kv_storage_that_the_matrices_do_not_ask_for() -> None:
    """The reader of a file says what the contract's rule says (1.0)."""
    model = mixed(changed("dense-tiny"), ("embed",))
    assert model.config.kv == "int8"
    other = Held(changed("dense-tiny", "file", kv_storage="f32").config, model.tensors)
    said = refused(other, ParityBug)
    assert said == "dense-tiny: KV storage f32, its matrices ask for int8"


def test_kv_storage_follows_the_matrices() -> None:
    """int8 with one Q4_0 matrix, f32 without any, f32 in every hybrid (contract 1.0)."""
    assert MODELS["f32 head"]().config.kv == "int8"
    assert MODELS["all f32 of a file"]().config.kv == "f32"
    assert MODELS["mixed hybrid"]().config.kv == "f32"


def test_two_digests_of_one_checkpoint_with_a_log_and_with_rates() -> None:
    """Another tensor name: the two are two models (contract 3.2)."""
    model = changed("next-tiny", layers=4)
    names = [
        set(wanted_tensors(each.config, list(each.names()))) for each in (model, with_rates(model))
    ]
    assert names[0] - names[1] == {f"layers.{layer}.a_log" for layer in range(3)}
    assert names[1] - names[0] == {f"layers.{layer}.rates" for layer in range(3)}


def test_check_outputs_are_the_oracles() -> None:
    """quick() is the oracle with products vectorised: they must be ops that the twin has."""
    model = held(changed("dense-tiny", layers=1), tensors_of(changed("dense-tiny", layers=1)))
    tokens = prompt_tokens(SEED, 1, 512)
    assert (
        first_difference(by_oracle(model, tokens, check.oracle), by_oracle(model, tokens)) is None
    )
