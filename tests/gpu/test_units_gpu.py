"""A tier's own code on a device: the bits of the code for all masks; a mix-up is never unseen."""

from __future__ import annotations

import re
from typing import Any

import pytest

from parity.errors import NotRunError
from parity.protocol import EngineSettings
from parity.variants import TIERS, variant_mask
from parity_cuda import cupy_backend, nvrtc
from parity_cuda.backend import Backend
from parity_cuda.cupy_backend import CupyBackend
from parity_cuda.engine import CudaEngine
from parity_cuda.selftest import OTHER_MASK, check_arithmetic
from parity_cuda.sources import Unit, kernel_sources, kernels_of
from tests.engines.cuda.graph_runs import first_difference, model_of, walk

pytestmark = pytest.mark.gpu

MASKS = {tier: variant_mask(names) for tier, names in TIERS.items()}
# One product of silu, in the code that knows its mask alone.
SILU = "  return __fmul_rn(x, any_sigmoid(x, variants));\n"
MOVED = f"#ifdef KNOWN_VARIANTS\n  x = __fadd_rn(x, 1.0f);\n#endif\n{SILU}"


class Planted(CudaEngine):
    """``cuda`` with silu of x + 1 in the kernels of its tier's own units."""

    def open(self, settings: EngineSettings) -> Backend:
        texts = kernel_sources()
        assert texts["variants.cuh"].count(SILU) == 1
        texts["variants.cuh"] = texts["variants.cuh"].replace(SILU, MOVED)
        return CupyBackend(settings, texts)


def settings_of(tier: str) -> EngineSettings:
    return EngineSettings(tier, TIERS[tier])


def general(tier: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An engine that has no code but that for all masks."""
    with monkeypatch.context() as patch:
        patch.setattr(cupy_backend, "known_mask", lambda variants: None)
        return CudaEngine(settings_of(tier))


def used(engine: Any) -> set[tuple[str, int | None]]:
    """Kernels that were launched, with what their units know."""
    return set(engine.backend._modules._codes)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("preset", ["moe-tiny", "dense-tiny", "hybrid-tiny", "next-tiny", "moe-48"])
def test_a_tiers_own_code_gives_the_bits_of_the_code_for_all(
    preset: str, tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every key of fused steps, recorded and not; all kernels that know their mask ran as such."""
    model = model_of(preset)
    ref, dut = general(tier, monkeypatch), CudaEngine(settings_of(tier))
    assert first_difference(walk(ref, model), walk(dut, model)) == ""
    step = {kernel for kernel, text in kernels_of(kernel_sources()).items()
            if text.mask is not None and kernel in dut.backend.counts}  # fmt: skip
    assert any(kernel.startswith("fused_project") for kernel in step)
    expected = {(kernel, MASKS[tier]) for kernel in step} | {("selftest", None)}
    assert {each for each in used(dut) if each[0] in step} == expected
    assert {mask for _, mask in used(ref)} == {None}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    ("preset", "key"), [("moe-tiny", "t0_l0_act"), ("dense-tiny", "t0_l0_act")]
)
def test_red_a_text_that_is_altered_in_a_tiers_own_code_alone(
    preset: str, key: str, tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(preset)
    ref, dut = general(tier, monkeypatch), Planted(settings_of(tier))
    found = first_difference(walk(ref, model), walk(dut, model))
    assert found == f"every field at 0: {key}"


@pytest.mark.parametrize("tier", TIERS)
def test_red_units_that_were_compiled_for_another_mask(
    tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, other = Unit(("selftest.cu",)).of(kernel_sources()), MASKS["fast"] ^ MASKS[tier]
    wrong = (*nvrtc.FLAGS, f"-DKNOWN_VARIANTS={other}")
    real = nvrtc.unit_flags
    with monkeypatch.context() as patch:
        patch.setattr(nvrtc, "unit_flags", lambda unit: real(unit) if unit.mask is None else wrong)
        backend = CupyBackend(settings_of(tier), texts)
    mask = MASKS[tier]
    said = f"cuda: start-up self-test: the build runs the code of another mask than {mask:04x} "
    with pytest.raises(
        NotRunError, match=re.escape(f"{said}(bits {other:08x}, needed {mask:08x})")
    ):
        check_arithmetic(backend, "cuda", mask)
    check_arithmetic(backend, "cuda", OTHER_MASK)  # the code for all is right
