"""Each launch runs the code of its own mask: what the texts say, what is loaded, what is picked."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.errors import NotRunError, ParityBug
from parity.protocol import EngineSettings
from parity.variants import TIERS, variant_mask
from parity_cuda import cupy_backend, modules, nvrtc, sources
from parity_cuda.cupy_backend import CupyBackend
from parity_cuda.engine import EmuEngine
from parity_cuda.fused import moe_layer
from parity_cuda.modules import FREE_SHARED, Modules
from parity_cuda.selftest import OTHER_MASK, check_arithmetic
from parity_cuda.sources import Kernel, Unit, kernel_sources, kernels_of, known_mask, units_of
from tests.engines.cuda.fake_cupy import FakeCupy, Function
from tests.engines.cuda.graph_runs import model_of
from tests.engines.kernel_texts import all_sources, kernels

TEXTS = kernel_sources()
KERNELS = kernels_of(TEXTS)
KNOWING = {name: each for name, each in KERNELS.items() if each.mask is not None}
MASKS = {tier: variant_mask(names) for tier, names in TIERS.items()}
FAST = EngineSettings("fast", TIERS["fast"])
RSQRT = EngineSettings(variants=frozenset({"rsqrt"}))
Opened = tuple[CupyBackend, FakeCupy]

# Comments and macros that a text could have around a kernel.
ODD = {
    "odd.cu": """// __global__ void commented(int variants) { variants = KNOWN(variants);
#define K(k) extern "C" __global__ void k(int variants) { \\
  variants = KNOWN(variants); }
extern "C" __global__ void __launch_bounds__(32, 2) odd(float* x,  // an int variants, first
    const int* variants_of, int variants, int n) {
  variants = KNOWN(variants);
}
extern "C" __global__ void late(int n, int variants) {
  if (n == 0) return;
  variants = KNOWN(variants);
}
MAP(mapped, odd_expf)
""",
    "odd.cuh": 'extern "C" __global__ void elsewhere(int n) {}\n',
}


def settings_of(tier: str) -> EngineSettings:
    return EngineSettings(tier, TIERS[tier])


OPENED = [(settings_of(tier), mask) for tier, mask in MASKS.items()]


def name_of(unit: Unit) -> str:
    return f"{unit.files[0]}.{unit.mask}.cubin"


def open_over(
    monkeypatch: pytest.MonkeyPatch, folder: Path, settings: EngineSettings, texts: dict[str, str]
) -> Opened:
    """A backend over a CuPy of no device; its cubins hold their names."""
    known = {name_of(unit): unit.mask for unit in units_of(texts, known_mask(settings.variants))}
    cupy = FakeCupy(known)

    def cached(given: Any, arch: str, units: list[Unit]) -> dict[Unit, Path]:
        assert (dict(given), arch) == (texts, "sm_90")
        for unit in units:
            (folder / name_of(unit)).write_text(name_of(unit))
        return {unit: folder / name_of(unit) for unit in units}

    monkeypatch.setattr(nvrtc, "cached_cubins", cached)
    monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: "NVRTC 0.0")
    monkeypatch.setattr(cupy_backend, "open_cupy", lambda: cupy)
    monkeypatch.setattr(cupy_backend, "open_programmatic", lambda arch: "none here")
    return CupyBackend(settings, texts), cupy


@pytest.fixture
def opened(request: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Opened:
    """A backend with the settings that the test names."""
    return open_over(monkeypatch, tmp_path, request.param, TEXTS)


def args_of(kernel: str, mask: int) -> list[np.generic]:
    """Scalars for a launch under a mask; every other one is a mask that nothing runs."""
    place = KERNELS[kernel].mask
    count = 40 if place is None else place + 3
    return [np.int32(mask if at == place else -9) for at in range(count)]


def launched(opened: Opened, kernel: str, mask: int, **more: Any) -> Function:
    """The function that one launch called."""
    backend, cupy = opened
    before = {key: len(each.launches) for key, each in cupy.functions.items()}
    args = args_of(kernel, mask)
    if kernel == "selftest":
        args[0] = backend.empty((5,), np.uint32)
    backend.launch(kernel, (1,), 32, args, **more)
    (found,) = [each for key, each in cupy.functions.items()
                if len(each.launches) != before.get(key, 0)]  # fmt: skip
    return found


# --- what the texts say ---------------------------------------------------------------------------


def test_every_kernel_is_found_and_where_its_mask_stands() -> None:
    wanted = kernels(TEXTS)
    assert {name: each.file for name, each in KERNELS.items()} == {
        name: each.file for name, each in wanted.items()
    }
    for name, each in KNOWING.items():
        assert each.mask == wanted[name].parameters.index("variants")
    assert set(kernels_of(all_sources())) == set(kernels(all_sources()))  # those of MAP too


def test_the_kernels_of_a_step_know_their_mask() -> None:
    """KNOWN elsewhere than in a kernel's first line would be a slow launch, and no word of it."""
    uses = sum(len(re.findall(r"\bKNOWN\(", text)) for text in TEXTS.values()) - 2  # its definition
    assert uses == len(KNOWING)
    assert {"fused_project", "fused_down", "attention_int8", "selftest"} <= set(KNOWING)


def test_a_text_of_any_look() -> None:
    assert kernels_of(ODD) == {
        "mapped": Kernel("odd.cu"), "odd": Kernel("odd.cu", 2), "late": Kernel("odd.cu"),
    }  # fmt: skip


@pytest.mark.parametrize("tier", TIERS)
def test_units(tier: str) -> None:
    every = [Unit((name,)) for name in TEXTS if name.endswith(".cu")]
    files = tuple(sorted({each.file for each in KNOWING.values()}))
    mask = known_mask(TIERS[tier])
    assert mask == MASKS[tier]
    assert units_of(TEXTS, mask) == [*every, Unit(files, mask)]
    assert units_of(TEXTS, None) == every
    assert known_mask(TIERS[tier] ^ {"fma"}) is None


def test_a_unit_has_no_other_kernel() -> None:
    headers = {name for name in TEXTS if name.endswith(".cuh")}
    assert set(Unit(("fused_down.cu",), 0).of(TEXTS)) == headers | {"fused_down.cu"}


# --- what a launch runs ---------------------------------------------------------------------------


@pytest.mark.parametrize(("opened", "own"), OPENED, indirect=["opened"], ids=TIERS)
def test_every_launch_runs_the_code_of_its_mask(opened: Opened, own: int) -> None:
    unit = units_of(TEXTS, own)[-1]
    for kernel, text in KERNELS.items():
        for mask in (*MASKS.values(), 1, OTHER_MASK):
            found = launched(opened, kernel, mask)
            # What takes no mask is beside the others of its file.
            has = text.file in unit.files and (text.mask is None or mask == own)
            name = name_of(unit if has else Unit((text.file,)))
            assert (Path(found.path).name, found.name) == (name, kernel)
            assert found.known == (own if has else None)


@pytest.mark.parametrize("opened", [RSQRT], indirect=True)
def test_a_mask_of_no_tier_has_the_code_for_all(opened: Opened) -> None:
    for kernel in KNOWING:
        for mask in (1, *MASKS.values()):
            assert launched(opened, kernel, mask).known is None


@pytest.mark.parametrize("opened", [FAST], indirect=True)
def test_what_is_told_covers_all_that_is_loaded(opened: Opened) -> None:
    told = opened[0].info()["compiled"]
    names = [name_of(unit) for unit in units_of(TEXTS, MASKS["fast"])]
    digests = [hashlib.sha256(name.encode()).digest() for name in names]
    assert told == hashlib.sha256(b"".join(digests)).hexdigest()[:16]


@pytest.mark.parametrize("opened", [FAST], indirect=True)
def test_every_unit_is_loaded_before_the_first_launch(opened: Opened) -> None:
    """While a step is recorded none can be."""
    assert opened[1].loaded == [name_of(unit) for unit in units_of(TEXTS, MASKS["fast"])]


@pytest.mark.parametrize("opened", [FAST], indirect=True)
def test_what_a_kernel_is_allowed(opened: Opened) -> None:
    """More shared memory than a kernel may have is asked for, and never less than it has; the split
    of the first cache is that of all launches that overlap."""
    most = 100 * 1024
    found = launched(opened, "fused_down", MASKS["fast"], shared=most)
    assert found.max_dynamic_shared_size_bytes == most
    assert found.preferred_shared_memory_carveout == -1
    launched(opened, "fused_down", MASKS["fast"], shared=FREE_SHARED + 1, overlap=True)
    assert found.max_dynamic_shared_size_bytes == most
    assert found.preferred_shared_memory_carveout == modules.SHARED_SPLIT == 100
    general = launched(opened, "fused_down", 0)
    assert general.max_dynamic_shared_size_bytes == FREE_SHARED


@pytest.mark.parametrize("opened", [FAST], indirect=True)
def test_two_backends_take_nothing_from_each_other(opened: Opened) -> None:
    """CuPy loads one path once: both have one function."""
    cupy, units = opened[1], units_of(TEXTS, MASKS["fast"])
    loaded = {unit: cupy.RawModule(path=name_of(unit)) for unit in units}
    other = Modules(TEXTS, loaded).code("fused_down", args_of("fused_down", 0))
    found = launched(opened, "fused_down", 0, shared=100_000)
    assert other.function is found
    other.allow(60_000, overlap=False)
    assert launched(opened, "fused_down", 0, shared=100_000) is found


@pytest.mark.parametrize("opened", [FAST], indirect=True)
def test_red_a_kernel_that_no_text_defines(opened: Opened) -> None:
    with pytest.raises(ParityBug, match="cuda: no text defines the kernel nothing"):
        opened[0].launch("nothing", (1,), 1, [])


def masks_of_a_step(preset: str, tier: str) -> set[tuple[str, int | None]]:
    """Each kernel that one fused step launches, with the mask that it is given."""
    engine = EmuEngine(settings_of(tier))
    engine.load(model_of(preset), 2)
    backend, found = engine.backend, set[tuple[str, int | None]]()
    real = backend.launch

    def launch(kernel: str, grid: Any, block: Any, args: Any, *more: Any, **named: Any) -> None:
        place = KERNELS[kernel].mask
        found.add((kernel, None if place is None else int(args[place])))
        real(kernel, grid, block, args, *more, **named)

    backend.launch = launch  # type: ignore[method-assign]
    engine.step(1)
    return found


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("preset", ["moe-tiny", "next-tiny"])
def test_every_launch_of_a_fused_step_has_the_tiers_mask(preset: str, tier: str) -> None:
    """One with other bits would run the code for all masks, and no bit would tell. What takes no
    mask has one code: its file has it for all."""
    found = masks_of_a_step(preset, tier)
    assert {mask for _, mask in found} == {None, MASKS[tier]}
    shared = {kernel for kernel, mask in found if mask is None}
    allowed = {"embed", "attention_int8_scores", "attention_f32_scores"}
    assert shared <= allowed
    assert not [kernel for kernel in shared if "variants" in kernels(TEXTS)[kernel].parameters]


def test_red_a_launch_of_a_fused_step_with_a_mask_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The router's, with one more bit than the exact tier has."""
    real = moe_layer.route

    def routed(*given: Any) -> None:
        real(*given[:-1], given[-1] | 1)

    monkeypatch.setattr(moe_layer, "route", routed)
    found = masks_of_a_step("moe-tiny", "exact")
    assert [each for each in found if each[1] not in (None, 0)] == [("fused_route", 1)]


# --- the self-test sees a launch that runs the code of another mask -------------------------------


@pytest.mark.parametrize(("opened", "mask"), OPENED, indirect=["opened"], ids=TIERS)
def test_the_self_test_runs_in_both_units(opened: Opened, mask: int) -> None:
    backend, cupy = opened
    check_arithmetic(backend, "cuda", mask)
    ran = {
        path
        for (path, name), each in cupy.functions.items()
        if name == "selftest" and each.launches
    }
    assert ran == {name_of(Unit(("selftest.cu",))), name_of(units_of(TEXTS, mask)[-1])}


def said(got: int, mask: int) -> str:
    return re.escape(f"cuda: start-up self-test: the build runs the code of another mask than "
                     f"{mask:04x} (bits {got:08x}, needed {mask:08x})")  # fmt: skip


@pytest.mark.parametrize("opened", [FAST], indirect=True)
def test_red_a_pick_that_does_not_look_at_the_mask(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every launch gets the tier's code: under another mask that is wrong."""
    fast = MASKS["fast"]
    monkeypatch.setattr(modules, "int", lambda _: fast, raising=False)
    with pytest.raises(NotRunError, match=said(fast, OTHER_MASK)):
        check_arithmetic(opened[0], "cuda", fast)


@pytest.mark.parametrize("opened", [FAST], indirect=True)
def test_red_a_unit_that_knows_another_mask(opened: Opened) -> None:
    """The code loaded for the fast tier was compiled for the exact one."""
    backend, cupy = opened
    cupy.known |= {name: 0 for name, known in cupy.known.items() if known is not None}
    with pytest.raises(NotRunError, match=said(0, MASKS["fast"])):
        check_arithmetic(backend, "cuda", MASKS["fast"])


def test_red_a_mask_that_stands_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A text that is read wrongly: the mask is taken for the argument before it."""
    real = sources.kernels_of
    monkeypatch.setattr(modules, "kernels_of", lambda texts: {
        name: Kernel(each.file, each.mask and each.mask - 1) for name, each in real(texts).items()
    })  # fmt: skip
    opened = open_over(monkeypatch, tmp_path, FAST, TEXTS)
    picked = {name for name in KNOWING if launched(opened, name, MASKS["fast"]).known is not None}
    assert picked == set()
