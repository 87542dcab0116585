"""The hybrid family against the scalar oracle: every op, and every field of a whole model.

The oracle is tests/oracle/hybrid_scalar.py and hybrid_model.py, written from contract 3 alone and
compared byte for byte. Planted mistakes must show, each at the key it makes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from parity.families import dumped_fields, layer_fields
from parity.keys import Key
from parity.model.config import ModelConfig
from parity.model.generator import prompt_tokens
from parity.model.model import Model, SyntheticModel, synthetic
from parity.model.rope import inv_freq
from parity.protocol import EngineSettings, Plan, Step
from parity.variants import variant_mask
from parity_cpu import Engine as CpuEngine
from parity_cuda import CudaEngine, EmuEngine
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.sources import kernel_sources
from tests.engines.cuda.op_runner import OpRunner
from tests.engines.op_arguments import op_arguments, parameters
from tests.oracle import check, hybrid_check, hybrid_twin, scalar, twin
from tests.oracle.hybrid_inputs import TABLES
from tests.oracle.hybrid_model import OPS, Fields, HybridModel
from tests.oracle.hybrid_scalar import query_scale
from tests.oracle.inputs import is_non_finite

SEED = 7
POSITIONS = 3
EVERY_FIELD = ("s", "ffn")
GPU = pytest.param(CudaEngine, marks=pytest.mark.gpu)
# Three Gated DeltaNet layers and one of full attention, no two sizes alike.
SMALL = ModelConfig(
    *("hybrid-small", 4, 32, 6, 2, 16, 40, 0, 0, 48, 1e7),
    weights="f32",
    family="hybrid",
    rot=4,
    gdn=(2, 6, 8, 12),
)

Array = np.ndarray[Any, np.dtype[Any]]


# --- ops ------------------------------------------------------------------------------------------


def run_cpu(op_name: str, args: check.Args, specs: hybrid_check.Specs, mask: int) -> check.Outputs:
    """The Numba op; its outputs start as garbage."""
    op = getattr(import_module(f"parity_cpu.ops.{op_name}"), op_name)
    outputs = tuple(np.full(shape, np.nan, dtype) for shape, dtype in specs)
    op(*op_arguments(op_name, parameters(op), outputs, args, mask))
    return outputs


@cache
def emulated(schedule: str) -> hybrid_check.Runner:
    """The kernels on one emulated device, its threads in this order."""
    return OpRunner(EmuBackend(EngineSettings(options={schedule: "3"})), schedule).run_for


@cache
def on_device() -> hybrid_check.Runner:
    """The kernels on a real device."""
    from parity_cuda.cupy_backend import CupyBackend

    return OpRunner(CupyBackend(EngineSettings()), "cuda").run_for


@pytest.mark.parametrize("op", TABLES)
def test_cpu_op_has_the_oracles_bytes(op: str) -> None:
    assert hybrid_check.check_op(op, run_cpu) > 4


@pytest.mark.parametrize("schedule", ["descending", "shuffled"])
@pytest.mark.parametrize("op", TABLES)
def test_kernel_has_the_oracles_bytes(op: str, schedule: str) -> None:
    assert hybrid_check.check_op(op, emulated(schedule)) > 4


@pytest.mark.gpu
@pytest.mark.parametrize("op", TABLES)
def test_kernel_on_the_device_has_the_oracles_bytes(op: str) -> None:
    assert hybrid_check.check_op(op, on_device()) > 4


@pytest.mark.parametrize("variant", hybrid_check.EXPONENTIALS)
@pytest.mark.parametrize("op", hybrid_check.WITH_VARIANTS)
def test_variants_have_the_oracles_bytes(op: str, variant: str) -> None:
    """Library functions are the C library's on both engines here (contract 5)."""
    mask = variant_mask([variant])
    for run in (run_cpu, emulated("descending")):
        assert hybrid_check.check_op(op, run, variant, mask) > 4
        with pytest.raises(check.OpMismatch, match="differ, first at"):
            hybrid_check.check_op(op, run, variant)


@pytest.mark.parametrize("op", sorted(set(TABLES) - {"split_gate"}))
def test_a_nan_needs_its_label(op: str) -> None:
    """Only labelled cases are lenient with NaN (contract 1.10), and each of those has one."""
    for case, _, outputs in hybrid_check.expected(op):
        has_nan = any(np.isnan(out).any() for out in outputs)
        assert has_nan == is_non_finite(case), case


def by_twin(
    op_name: str, args: check.Args, specs: hybrid_check.Specs, mask: int, fault: str | None = None
) -> check.Outputs:
    """The vectorised twin, which gives the state back instead of changing it."""
    outputs = hybrid_twin.run(op_name, args, fault)
    if op_name not in hybrid_check.IN_PLACE:
        return outputs
    args[0][...] = outputs[-1]
    return outputs[:-1]


@pytest.mark.parametrize("op", hybrid_twin.FAULTS)
def test_second_writing_has_the_oracles_bytes(op: str) -> None:
    """Without a fault: the next test's reds are the faults' own."""
    assert hybrid_check.check_op(op, by_twin) > 4


PLANTED = [(op, fault) for op, faults in hybrid_twin.FAULTS.items() for fault in faults]


@pytest.mark.parametrize(("op", "fault"), PLANTED, ids=[f"{op} | {f}" for op, f in PLANTED])
def test_red_wrong_op(op: str, fault: str) -> None:
    with pytest.raises(check.OpMismatch, match="differ, first at"):
        hybrid_check.check_op(op, partial(by_twin, fault=fault))


def _flipped(op: str, args: check.Args, specs: hybrid_check.Specs, mask: int) -> check.Outputs:
    outputs = run_cpu(op, args, specs, mask)
    changed = args[0] if op in hybrid_check.IN_PLACE else outputs[-1]
    changed.view(np.uint8).reshape(-1)[-changed.itemsize] ^= 1
    return outputs


def _spoiled(op: str, args: check.Args, specs: hybrid_check.Specs, mask: int) -> check.Outputs:
    outputs = run_cpu(op, args, specs, mask)
    given = args[1 if op in hybrid_check.IN_PLACE else 0]
    given.view(np.uint8).reshape(-1)[0] ^= 1
    return outputs


@pytest.mark.parametrize("op", TABLES)
def test_red_one_bit_of_an_output_or_of_the_state(op: str) -> None:
    with pytest.raises(check.OpMismatch, match=r"1 of \d+ differ"):
        hybrid_check.check_op(op, _flipped)


@pytest.mark.parametrize("op", TABLES)
def test_red_a_changed_input(op: str) -> None:
    with pytest.raises(check.OpMismatch, match="changed its inputs"):
        hybrid_check.check_op(op, _spoiled)


@pytest.mark.parametrize(
    ("op", "file", "old", "new"),
    [
        ("conv_step", "delta.cuh", "__fmul_rn(w[t], tap[t])", "__fmul_rn(w[3 - t], tap[t])"),
        ("delta_step", "delta_step.cu", "h / (gridDim.y / key_heads)", "h % key_heads"),
        ("delta_gates", "delta_gates.cu", "any_sigmoid(b[at]", "any_sigmoid(a[at]"),
    ],
)
def test_red_kernel_text(op: str, file: str, old: str, new: str) -> None:
    sources = kernel_sources()
    assert sources[file].count(old) == 1
    sources[file] = sources[file].replace(old, new)
    planted = OpRunner(EmuBackend(EngineSettings(), sources), "planted")
    with pytest.raises(check.OpMismatch, match="differ, first at"):
        hybrid_check.check_op(op, planted.run_for)


# --- the whole model ------------------------------------------------------------------------------


def tensors(model: Model) -> dict[str, Array]:
    return {name: model.tensor(name) for name in model.names()}


def tokens(model: Model) -> list[int]:
    return prompt_tokens(SEED, POSITIONS, model.config.vocab)


def by_oracle(oracle: HybridModel, ids: list[int]) -> Fields:
    out: Fields = OrderedDict()
    for token in ids:
        out.update(oracle.step(token))
    return out


def _product(name: str) -> Callable[..., Any]:
    return lambda *args: twin.run(name, args)[0]


# The products are nearly all of the time; tests/oracle holds both writings to the same bytes.
VECTORISED = {**OPS, **{name: _product(name) for name in ("q4_matvec", "f32_matvec")}}


@cache
def oracle_fields(model: SyntheticModel, scalar_products: bool = False) -> Fields:
    """Worked out once a process; with scalar products seconds a position."""
    ops = OPS if scalar_products else VECTORISED
    return by_oracle(HybridModel(model.config, tensors(model), ops), tokens(model))


def every_key(config: ModelConfig) -> Iterator[Key]:
    fields = dumped_fields(config, EVERY_FIELD)
    for pos in range(POSITIONS):
        for layer in range(config.layers):
            yield from (Key(pos, layer, name) for name in layer_fields(config, layer, fields))
        yield from (Key(pos, None, name) for name in ("final_normed", "logits"))


def collected(steps: list[Step]) -> Fields:
    """Captured tensors in the order of the entries."""
    out: Fields = OrderedDict()
    for step in steps:
        for entry in step.entries:
            out[str(entry.key)] = step.tensors[entry.key]
    return out


def by_engine(engine: Any, model: Model, at_once: bool = False) -> Fields:
    """Every field of all positions, token by token or as rows of one forward."""
    side = engine(EngineSettings())
    side.load(model, POSITIONS)
    keys = frozenset(every_key(model.config))
    plan = Plan(dumped_fields(model.config, EVERY_FIELD), tensors=keys)
    if at_once:
        return collected(side.step_rows(tokens(model), plan))
    return collected([side.step(token, plan) for token in tokens(model)])


def first_difference(ref: Fields, dut: Fields) -> str | None:
    """The first key whose dtype, shape or bytes differ; the keys and their order must agree."""
    assert list(ref) == list(dut)
    for key, value in ref.items():
        other = dut[key]
        same = (value.dtype, value.shape) == (other.dtype, other.shape)
        if not same or value.tobytes() != other.tobytes():
            return key
    return None


@pytest.mark.parametrize("weights", ["q4", "f32"])
@pytest.mark.parametrize("engine", [CpuEngine, EmuEngine, GPU])
def test_every_field_has_the_oracles_bytes(engine: Any, weights: str) -> None:
    """hybrid-tiny at 3 positions: fields of 3.1, 3.2, +s and +ffn."""
    model = synthetic("hybrid-tiny", SEED, weights)
    ref = oracle_fields(model)
    assert len(ref) == POSITIONS * (6 * (13 + 6) + 2 * (10 + 5) + 2)
    assert first_difference(ref, by_engine(engine, model)) is None


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["q4", "f32"])
def test_every_field_has_the_bytes_of_scalars_alone(weights: str) -> None:
    model = synthetic("hybrid-tiny", SEED, weights)
    ref = oracle_fields(model, scalar_products=True)
    assert first_difference(ref, oracle_fields(model)) is None
    assert first_difference(ref, by_engine(CpuEngine, model)) is None


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("engine", [CpuEngine, EmuEngine, GPU])
def test_sizes_that_differ_and_rows_at_once(engine: Any, at_once: bool) -> None:
    """kd is not vd, 6 heads on 2; three rows in one forward have the bits of three steps."""
    model = SyntheticModel(SMALL, SEED)
    ref = oracle_fields(model, scalar_products=True)
    assert first_difference(ref, by_engine(engine, model, at_once)) is None


# --- planted mistakes -----------------------------------------------------------------------------


class KeyScaledLikeQuery(HybridModel):
    def _unit(self, conv: Array) -> tuple[Array, Array]:
        q, k = super()._unit(conv)
        return q, k * query_scale(k.shape[1])


class GateBeforeAttention(HybridModel):
    """The query is gated, the output is not."""

    def _attend(self, layer: int, qrope: Array, gate: Array) -> tuple[Array, Array]:
        attn, _ = super()._attend(layer, self.op("sigmoid_gate", qrope, gate), gate)
        return attn, attn


class WholeHeadRotated(HybridModel):
    """rot_dim ignored."""

    def rotated(self, heads: Array) -> Array:
        return scalar.rope(heads, inv_freq(1e7, heads.shape[2]), self.pos)


class QueryUnderKeyNorm(HybridModel):
    """Q's chain uses K's norm weights."""

    def _attention(self, layer: int, nrm: Array, fields: Fields) -> Array:
        name = f"layers.{layer}."
        self.tensors = {**self.tensors, f"{name}q_norm": self.tensors[f"{name}k_norm"]}
        return super()._attention(layer, nrm, fields)


class NormAfterGate(HybridModel):
    """gn: z first, then the norm."""

    def _delta(self, layer: int, nrm: Array, fields: Fields) -> Array:
        super()._delta(layer, nrm, fields)
        gated = self.op("silu_gate", fields["o"], fields["z"])
        weight = self.tensors[f"layers.{layer}.gdn_norm"]
        fields["gn"] = self.op("headnorm", gated[None], weight, self.eps)[0]
        return np.asarray(fields["gn"])


class NewestKeyUnseen(HybridModel):
    def _attend(self, layer: int, qrope: Array, gate: Array) -> tuple[Array, Array]:
        kept = self.kv[layer]
        self.kv[layer] = ((kept[0][:-1] or kept[0]) * 2, (kept[1][:-1] or kept[1]) * 2)
        out = super()._attend(layer, qrope, gate)
        self.kv[layer] = kept
        return out


WRONG_MODELS = [
    (KeyScaledLikeQuery, "t0_l0_kn"),
    (GateBeforeAttention, "t0_l3_gated"),
    (WholeHeadRotated, "t1_l3_k"),
    (QueryUnderKeyNorm, "t0_l3_qrope"),
    (NormAfterGate, "t0_l0_gn"),
    (NewestKeyUnseen, "t1_l3_attn"),
]
WRONG_OPS = [
    ("split_gate", "gate first", "t0_l3_qrope"),
    ("sigmoid_gate", "silu of the gate", "t0_l3_gated"),
    ("silu_gate", "sigmoid of z", "t0_l0_gn"),
    ("decay_rates", "not exponentiated", "t0_l0_g"),
    ("conv_step", "taps descending", "t0_l0_conv"),
    ("conv_step", "silu left out", "t0_l0_conv"),
    ("conv_step", "hist shifted by the output", "t0_l0_hist"),
    ("conv_step", "newest kept first", "t0_l0_hist"),
    ("l2norm", "mean of the squares", "t0_l0_qn"),
    ("delta_gates", "beta after sigmoid twice", "t0_l0_beta"),
    ("delta_gates", "bias left out", "t0_l0_g"),
    ("delta_gates", "g before expf", "t0_l0_g"),
    ("delta_step", "delta before decay", "t1_l0_s"),
    ("delta_step", "decay after the update", "t0_l0_s"),
    ("delta_step", "value head reads key head h mod kh", "t0_l0_s"),
    ("delta_step", "o from the old S", "t0_l0_o"),
    ("delta_step", "sums descending", "t0_l0_o"),
]


@cache
def small_run() -> Fields:
    return by_engine(CpuEngine, SyntheticModel(SMALL, SEED))


def small_oracle(
    wrong: type[HybridModel] = HybridModel, ops: Mapping[str, Callable[..., Any]] = OPS
) -> Fields:
    model = SyntheticModel(SMALL, SEED)
    return by_oracle(wrong(SMALL, tensors(model), ops), tokens(model))


@pytest.mark.parametrize(("wrong", "key"), WRONG_MODELS)
def test_red_wrong_wiring_shows_at_its_key(wrong: type[HybridModel], key: str) -> None:
    assert first_difference(small_oracle(wrong), small_run()) == key


@pytest.mark.parametrize(("op", "fault", "key"), WRONG_OPS)
def test_red_wrong_op_shows_at_its_key(op: str, fault: str, key: str) -> None:
    def wrong(*args: Any) -> Any:
        outputs = hybrid_twin.run(op, args, fault)
        return outputs if len(outputs) > 1 else outputs[0]

    assert first_difference(small_oracle(ops={**OPS, op: wrong}), small_run()) == key


def test_red_a_field_that_is_missing_or_out_of_order() -> None:
    ref = small_run()
    without = OrderedDict(item for item in ref.items() if item[0] != "t1_l0_s")
    swapped = OrderedDict(sorted(ref.items()))
    for dut in (without, swapped):
        with pytest.raises(AssertionError):
            first_difference(ref, dut)
