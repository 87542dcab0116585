"""fused_project with zero_point has the bytes of its definition (contract 5), in every order of
threads, where inputs are scaled and where they are not."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from parity.protocol import EngineSettings
from parity.variants import variant_mask
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.sources import kernel_sources
from tests.engines.cuda.test_ops_emu import SCHEDULES, SHARED, runner
from tests.engines.emu.project_cases import LEAST, MOST, Arrays, Shape, by_launch, by_ops, data

F = np.float32
FUSED = variant_mask(["fma", "zero_point"])
SHAPE = Shape(96, (3,), norm=False)


def fma32(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once to f32: by way of the f64 that has an odd last bit where it is not
    exact (Boldo and Melquiond), as a * b of two f32 is exact there."""
    product, addend = float(a) * float(b), float(c)
    total = product + addend
    if np.isfinite(total) and total:
        rest = Fraction(product) + Fraction(addend) - Fraction(total)
        if rest and not int(np.float64(total).view(np.uint64)) & 1:
            total = float(np.nextafter(total, np.inf if rest > 0 else -np.inf))
    return F(total)


def by_definition(d: Any, qs: Any, x: Any) -> Any:
    """One row: d f16[nb], qs u8[nb * 16], x f32[nb * 32]."""
    acc = F(0)
    for block, scale in enumerate(d.view(np.float16).astype(F)):
        packed = qs[16 * block : 16 * block + 16]
        s, inputs = F(0), F(0)
        for n, v in zip([*(packed & 15), *(packed >> 4)], x[32 * block :][:32], strict=True):
            s, inputs = fma32(n, v, s), F(inputs + v)
        acc = fma32(scale, F(s - F(8) * inputs), acc)
    return acc


def adversarial(kind: str) -> Arrays:
    """Inputs whose sums cancel, to nothing or to their last bits, at the ends of the scaling."""
    given = data(SHAPE)
    rng = np.random.default_rng(11)
    x = given["x"][0]
    if kind == "least":
        x[:] = LEAST * rng.choice([1, -1, 1.5, -1.25, 0], len(x)).astype(F)
    elif kind == "last bits of least":
        x[:] = np.nextafter(LEAST, F(1)) * rng.choice([1, -1], len(x)).astype(F)
        x[1::2] = -LEAST
    elif kind == "most":
        x[:] = MOST * rng.choice([1, -1, 0.5], len(x)).astype(F)
    elif kind == "most beside least":
        x[:] = rng.choice([MOST, -MOST, LEAST, -LEAST, F(1)], len(x))
    elif kind == "each size":
        x[:] = np.ldexp(1 + rng.random(len(x)), rng.integers(-86, 26, len(x)))
        x[1::2] *= -1
    elif kind == "below the scaling":
        x[:] = np.ldexp(1 + rng.random(len(x)), rng.integers(-149, -80, len(x)))
        x[1::2] *= -1
    elif kind == "below it, not subnormal":
        x[:] = np.ldexp(1 + rng.random(len(x)), rng.integers(-124, -112, len(x)))
        x[1::2] *= -1
    elif kind == "cancel":
        x[16:32] = -x[:16]
        given["qs0"][0, :16] = given["qs0"][0, :16] & 15 | given["qs0"][0, :16] << 4
    else:
        assert kind == "zeros"
        x[:] = rng.choice([F(0), F(-0.0), F(1)], len(x))
    return given


KINDS = (
    *("least", "last bits of least", "most", "most beside least", "each size"),
    *("below the scaling", "below it, not subnormal", "cancel", "zeros"),
)


@cache
def wanted(kind: str) -> tuple[Arrays, Any]:
    given = adversarial(kind)
    with np.errstate(all="ignore"):
        rows = zip(given["d0"], given["qs0"], strict=True)
        return given, np.array([by_definition(d, qs, given["x"][0]) for d, qs in rows], F)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", KINDS)
def test_zero_point_is_its_definition(kind: str, schedule: str) -> None:
    given, ref = wanted(kind)
    device = runner(schedule).backend
    for also in ([], ["unpaired"]):
        mask = FUSED | variant_mask(also)
        device.counts.clear()
        found = by_launch(device, SHAPE, given, mask)["out0"]
        assert found.tobytes() == ref.tobytes(), (found, ref)
        assert list(device.counts) == ["fused_project"]
        assert by_ops(device, SHAPE, given, mask)["out0"].tobytes() == ref.tobytes()


@pytest.mark.parametrize("also", [[], ["unpaired"], ["split_k"]])
@pytest.mark.parametrize("kind", KINDS)
def test_zero_point_without_fma_has_the_bytes_of_the_ops(kind: str, also: list[str]) -> None:
    device, given = runner("ascending").backend, adversarial(kind)
    mask = variant_mask(["zero_point", *also])
    with np.errstate(all="ignore"):
        device.counts.clear()
        dut = by_launch(device, SHAPE, given, mask)
        assert list(device.counts) == ["fused_project"]
        assert dut["out0"].tobytes() == by_ops(device, SHAPE, given, mask)["out0"].tobytes()


FAULTS = {
    "inputs that are too small are scaled": (
        ("row_input.cuh", "size >= 0x14800000u", "size >= 0x00800000u"),
        "below it, not subnormal",
    ),
    "the zero point of another block": (
        ("q4_row.cuh", "if (FIXED & ZERO_POINT) eight[0] = sum;",
         "if (FIXED & ZERO_POINT) eight[0] = __shfl_xor_sync(0xffffffffu, sum, 1);"), "each size",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_red_a_planted_fault_shows(fault: str) -> None:
    (file, old, new), kind = FAULTS[fault]
    sources = kernel_sources()
    assert sources[file].count(old) == 1
    sources[file] = sources[file].replace(old, new)
    needed = {name: text for name, text in sources.items() if name in {*SHARED, "fused_project.cu"}}
    given, ref = wanted(kind)
    device = EmuBackend(EngineSettings(options=SCHEDULES["ascending"]), needed)
    found = by_launch(device, SHAPE, given, FUSED)["out0"]
    assert np.flatnonzero(found.view(np.uint32) != ref.view(np.uint32)).tolist() == [0, 1, 2]
