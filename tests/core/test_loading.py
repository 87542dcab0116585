"""Loading: tensors in the order of the digest, weights that are not finite refused (1.10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from parity.errors import InputError
from parity.model.config import ModelConfig
from parity.model.loading import load_tensors
from parity.model.model import SyntheticModel, synthetic
from parity.protocol import EngineSettings
from parity.registry import engine_class
from tests.cli_runner import run_cli


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
