"""Loading: tensors in the order of the digest, weights that are not finite refused (1.10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from parity.errors import InputError
from parity.model.config import ModelConfig, preset
from parity.model.loading import load_tensors
from parity.model.model import SyntheticModel, synthetic
from parity.protocol import EngineSettings
from parity.registry import engine_class
from tests.cli_runner import run_cli
from tests.engines.scalar_models import Held, tensors_of


@dataclass(frozen=True)
class Spoiled:
    """A model with one bit pattern put into element 3 of one tensor."""

    whole: SyntheticModel
    name: str
    bits: int

    @property
    def config(self) -> ModelConfig:
        return self.whole.config

    @property
    def label(self) -> str:
        return f"{self.whole.label}, spoiled"

    def names(self) -> Iterator[str]:
        return self.whole.names()

    def tensor(self, name: str) -> np.ndarray:
        array = self.whole.tensor(name).copy()
        if name == self.name:
            kind = np.uint32 if array.dtype == np.float32 else array.dtype
            array.reshape(-1).view(kind)[3] = self.bits
        return array


def test_every_tensor_comes_once_in_order_with_its_bytes() -> None:
    model = synthetic("moe-tiny", 7)
    loaded = list(load_tensors(model))
    assert [name for name, _ in loaded] == list(model.names())
    for name, array in loaded:
        assert array.tobytes() == model.tensor(name).tobytes(), name
        assert array.flags.c_contiguous


@pytest.mark.parametrize("engine", ["cpu", "emu"])
@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("layers.1.attn_norm", 0x7FC00000),
        ("layers.2.router", 0xFF800000),
        ("layers.3.experts.down.d", 0x7C00),
        ("lm_head.d", 0xFE01),
    ],
)
def test_red_weight_that_is_not_finite_is_refused(engine: str, name: str, bits: int) -> None:
    model = Spoiled(synthetic("moe-tiny", 7), name, bits)
    opened = engine_class(engine)(EngineSettings())  # type: ignore[call-arg]
    with pytest.raises(InputError, match=rf"^weight {name} holds 1 non-finite .* element 3$"):
        opened.load(model, 8)


@pytest.mark.parametrize("bits", [0x7F7FFFFF, 0x00000001, 0x80000000])
def test_largest_smallest_and_negative_zero_weights_are_loaded(bits: int) -> None:
    spoiled = Spoiled(synthetic("moe-tiny", 7), "layers.1.attn_norm", bits)
    assert dict(load_tensors(spoiled))["layers.1.attn_norm"].view(np.uint32)[3] == bits


# --- shapes: ops take sizes from the configuration, and read past the end of what is shorter ------


def cut(array: np.ndarray) -> np.ndarray:
    """Without the last row."""
    return np.ascontiguousarray(array[:-1])


def flat(array: np.ndarray) -> np.ndarray:
    """The same bytes in one row more than they have axes."""
    return array[None]


def doubled(array: np.ndarray) -> np.ndarray:
    """The same values with twice the bytes."""
    return array.astype(np.float64)


def refused(model: Held) -> str:
    """What is said of a model; the tensors before the refused one may have been made."""
    with pytest.raises(InputError) as raised:
        list(load_tensors(model))
    assert raised.value.next_step == "check how the model file was made"
    return raised.value.message


@pytest.mark.parametrize(
    ("name", "weights"), [("moe-tiny", "q4"), ("dense-tiny", "f32"), ("hybrid-tiny", "q4")]
)
@pytest.mark.parametrize("change", [cut, flat, doubled])
def test_red_every_tensor_of_another_shape_is_refused(
    name: str, weights: str, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    model = synthetic(name, 7, weights)
    whole = tensors_of(model)
    for tensor, array in whole.items():
        said = refused(Held(model.config, {**whole, tensor: change(array)}))
        assert said.startswith(f"weight {tensor} is "), said
        kind = {"float32": "f32", "uint16": "f16", "uint8": "u8"}[array.dtype.name]
        shape = ",".join(map(str, array.shape))
        assert said.endswith(f", the model needs {kind}[{shape}]"), said


def test_red_every_tensor_that_is_missing_is_refused() -> None:
    model = synthetic("hybrid-tiny", 7)
    whole = tensors_of(model)
    for name in whole:
        left = {other: array for other, array in whole.items() if other != name}
        # Without its scales a matrix is not known to be Q4_0.
        told = name.removesuffix(".d")
        assert refused(Held(model.config, left)) == f"weight {told} of hybrid-tiny is missing"


@pytest.mark.parametrize("engine", ["cpu", "emu"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("embed.qs", "weight embed.qs is u8[511,80], the model needs u8[512,80]"),
        ("layers.2.router", "weight layers.2.router is f32[7,160], the model needs f32[8,160]"),
        ("layers.1.q_norm", "weight layers.1.q_norm is f32[95], the model needs f32[96]"),
        ("inv_freq", "weight inv_freq is f32[47], the model needs f32[48]"),
    ],
)
def test_red_engine_refuses_it_at_load(engine: str, name: str, said: str) -> None:
    model = synthetic("moe-tiny", 7)
    whole = tensors_of(model)
    opened = engine_class(engine)(EngineSettings())  # type: ignore[call-arg]
    with pytest.raises(InputError) as raised:
        opened.load(Held(model.config, {**whole, name: cut(whole[name])}), 8)
    assert raised.value.message == said


def test_red_block_that_does_not_divide_a_row() -> None:
    odd = replace(preset("dense-tiny", "f32"), inter=250)
    tensors = tensors_of(SyntheticModel(odd, 7))
    assert list(dict(load_tensors(Held(odd, tensors)))) == list(tensors)
    del tensors["layers.0.mlp.down"]
    tensors["layers.0.mlp.down.d"] = np.zeros((128, 7), np.uint16)
    said = "layers.0.mlp.down of dense-tiny is held as Q4_0, but its rows of 250 are no multiple"
    with pytest.raises(InputError, match=said):
        list(load_tensors(Held(odd, tensors)))


@pytest.mark.parametrize("engine", ["cpu", "emu"])
def test_matrices_may_be_held_in_either_way(engine: str) -> None:
    """One matrix as f32 among Q4_0, and a narrow one as Q4_0: both load and run."""
    q4, f32 = synthetic("hybrid-tiny", 7), synthetic("hybrid-tiny", 7, "f32")
    mixed = tensors_of(q4)
    for part in ("d", "qs"):
        del mixed[f"layers.0.mlp.up.{part}"]
    mixed["layers.0.mlp.up"] = f32.tensor("layers.0.mlp.up")
    del mixed["layers.1.a_proj"]
    mixed["layers.1.a_proj.d"] = np.full((6, 5), 0x2C00, np.uint16)
    mixed["layers.1.a_proj.qs"] = np.full((6, 80), 0x79, np.uint8)
    mixed["unread"] = np.zeros(3, np.float64)  # nothing reads it, so nothing is asked of it
    model = Held(q4.config, mixed)
    assert list(dict(load_tensors(model))) == list(mixed)
    del mixed["unread"]
    opened = engine_class(engine)(EngineSettings())  # type: ignore[call-arg]
    opened.load(model, 8)
    assert np.isfinite(opened.step(1).logits).all()


@pytest.mark.parametrize(
    ("dut", "said"),
    [
        ("cpu@foo=1", "parity: cpu has no option @foo"),
        ("emu@foo", "parity: emu has no option @foo"),
        ("emu@shuffled=x", "parity: emu@shuffled=x: not a number"),
    ],
)
def test_red_option_that_an_engine_lacks_is_refused(dut: str, said: str) -> None:
    result = run_cli("diff", "--ref", "cpu", "--dut", dut)
    assert (result.status, result.stdout) == (2, "")
    assert said in result.stderr.splitlines()


@pytest.mark.parametrize("option", ["--rb", "--rb-only"])
def test_red_chunks_with_rollback_is_refused(option: str) -> None:
    result = run_cli("isodiff", "--chunks", "2", option)
    assert (result.status, result.stdout) == (2, "")
    assert "--chunks is a check of its own" in result.stderr
