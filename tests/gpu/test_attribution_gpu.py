"""A device's own functions: what it tells of them, and that the keys they change are put to them.

No other machine has their bits, so there is no count to hold against: the arguments are the scalar
oracle's, and what the device tells must make its own bytes. The emulated kernels keep the same.
"""

from __future__ import annotations

import numpy as np
import pytest

from parity.protocol import ELEMENTARY, EngineSettings
from parity.registry import engine_class
from parity_cpu import Engine as Cpu
from tests.red.test_red_attribution import attributed, born, forced, reference

ENGINES = [pytest.param("cuda", marks=pytest.mark.gpu), "emu"]
MODELS = [("moe-tiny", 0), ("hybrid-tiny", 0)]
SWAPS = {"rsqrt": {"rsqrt"}, "libm_exp": {"expf"}, "libm_sincos": {"cosf", "sinf"}}


def opened(engine: str, *variants: str):  # type: ignore[no-untyped-def]
    """An engine with these variants of the exact tier."""
    return engine_class(engine)(EngineSettings(variants=frozenset(variants)))  # type: ignore[call-arg]


@pytest.mark.parametrize("engine", ENGINES)
def test_exact_functions_are_the_cpu_s(engine: str) -> None:
    rng = np.random.default_rng(20_261_130)
    drawn = rng.integers(0, 1 << 32, 200_000, np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([drawn[~np.isnan(drawn)], np.array([0.0, -0.0, np.inf], np.float32)])
    dut, ref = opened(engine), Cpu(EngineSettings())
    for function in ELEMENTARY:
        found, wanted = dut.elementary(function, x), ref.elementary(function, x)
        differ = (found.view(np.uint32) != wanted.view(np.uint32)) & ~np.isnan(wanted)
        assert not differ.any(), (function, x[differ][:3])
        assert np.array_equal(np.isnan(found), np.isnan(wanted))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("variant", SWAPS)
@pytest.mark.parametrize(("model", "seed"), MODELS)
def test_functions_make_the_bytes_of_every_born_key(
    model: str, seed: int, variant: str, engine: str
) -> None:
    ref, dut = reference(model, seed), opened(engine, variant)
    made = forced(dut, ref)
    assert forced(Cpu(EngineSettings()), ref, dut.elementary) == made
    keys = [one.key for one, two in zip(ref.entries, made, strict=True) if one != two]
    for key in keys:
        found = attributed(dut, ref, key)
        assert found, key
        assert {diff.function for diff in found} <= SWAPS[variant]
        log = ref.seen.calls(key)
        for diff in found:
            given = [x for name, x in log if name == diff.function]
            told = {f"{int(x.view(np.uint32)):08x}" for x in given}
            assert (diff.calls, diff.first_input in told) == (len(given), True)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("model", "seed"), MODELS)
def test_nothing_is_born_in_the_exact_tier(model: str, seed: int, engine: str) -> None:
    assert born(opened(engine), reference(model, seed)) == []
