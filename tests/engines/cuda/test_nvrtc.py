"""NVRTC as the engine uses it: flags, messages, the cache. No device is needed, only its wheel."""

from __future__ import annotations

import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from parity.errors import InputError, NotRunError
from parity.variants import TIERS
from parity_cuda import nvrtc, nvrtc_wheel
from parity_cuda.sources import Unit, kernel_sources, known_mask, units_of
from tests.engines.needed import lack

ARCH, UNIT = "sm_90", Unit(("fusible.cu",))
FUSIBLE = {
    "fusible.cu": 'extern "C" __global__ void fusible(float* x) { x[0] = x[1] * x[2] + x[3]; }\n'
}


@pytest.fixture
def usable() -> None:
    """Skip where there is no NVRTC; CI may not be without it."""
    try:
        nvrtc.nvrtc_version()
    except NotRunError:
        lack("nvrtc: NVRTC is not installed")


@pytest.fixture
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy cannot be imported."""
    for name in ("cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.libs"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package of NVIDIA's is installed."""
    monkeypatch.setattr(nvrtc_wheel, "find_spec", lambda name: None)
    monkeypatch.setattr(nvrtc_wheel, "open_wheel", nvrtc_wheel.open_wheel.__wrapped__)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of our own."""
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.usefixtures("no_cupy", "no_wheel")
def test_without_cupy_the_message_says_what_to_install() -> None:
    with pytest.raises(NotRunError, match="cuda: NVRTC is not usable: ") as raised:
        nvrtc.compile_cubin(FUSIBLE, ARCH)
    assert "pip install" in raised.value.next_step


@pytest.mark.usefixtures("usable", "no_cupy")
def test_without_cupy_the_wheel_compiles() -> None:
    assert isinstance(nvrtc._binding(), nvrtc_wheel.Library)
    cubin, log = nvrtc.compile_cubin(FUSIBLE, ARCH)
    assert cubin.startswith(b"\x7fELF")
    assert log == ""
    broken = {"broken.cu": 'extern "C" __global__ void broken() { nothing(); }\n'}
    with pytest.raises(InputError, match=r"for sm_90: broken\.cu\(1\): error: .*nothing"):
        nvrtc.compile_cubin(broken, ARCH)


@pytest.mark.usefixtures("no_wheel")
def test_no_wheel() -> None:
    with pytest.raises(OSError, match="neither CuPy nor a wheel"):
        nvrtc_wheel.open_wheel()


def test_the_newest_wheel_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By number: 9 is older than 13. These are no libraries, so the message names the choice."""
    for folder, version in (("cuda_nvrtc", 9), ("cu13", 13), ("cuda_nvrtc", 12)):
        (tmp_path / folder / "lib").mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "lib" / f"libnvrtc.so.{version}").write_text("no library\n")
        (tmp_path / folder / "lib" / f"libnvrtc-builtins.so.{version}.9").write_text("\n")
    spec = ModuleSpec("nvidia", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(nvrtc_wheel, "find_spec", lambda name: spec)
    with pytest.raises(OSError, match=r"cu13/lib/libnvrtc\.so\.13"):
        nvrtc_wheel.open_wheel.__wrapped__()


def test_every_kernel_is_in_the_unit() -> None:
    lines = nvrtc.unit(kernel_sources()).splitlines()
    assert lines == [
        f'#include "{name}"' for name in sorted(kernel_sources()) if name[-3:] == ".cu"
    ]
    assert '#include "rmsnorm.cu"' in lines


def test_flags_say_what_the_contract_needs() -> None:
    assert set(nvrtc.FLAGS) >= {"-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true"}
    assert not [flag for flag in nvrtc.FLAGS if "fast" in flag]


@pytest.mark.usefixtures("usable")
def test_version() -> None:
    name, number = nvrtc.nvrtc_version().split()
    assert name == "NVRTC"
    assert int(number.split(".")[0]) >= 12


@pytest.mark.usefixtures("usable")
def test_the_kernels_compile_without_a_word() -> None:
    sources = kernel_sources()

    def compiled(unit: Unit) -> tuple[bytes, str]:
        return nvrtc.compile_cubin(unit.of(sources), ARCH, nvrtc.unit_flags(unit))

    units = units_of(sources, None)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for unit, (cubin, log) in zip(units, pool.map(compiled, units), strict=True):
            assert cubin.startswith(b"\x7fELF")
            assert log.strip("\0\n ") == "", unit


def checked(sources: dict[str, str], unit: Unit) -> str:
    """All that the compiler says of a unit's text; it makes no code, which takes half a minute."""
    binding, texts = nvrtc._binding(), unit.of(sources)
    encoded = [(text.encode(), name.encode()) for name, text in texts.items()]
    program = binding.createProgram(
        nvrtc.unit(texts), "kernels.cu", *map(list, zip(*encoded, strict=True))
    )
    try:
        options = [f"--gpu-architecture={ARCH}", *nvrtc.unit_flags(unit), "--fdevice-syntax-only"]
        binding.compileProgram(program, options)
        return str(binding.getProgramLog(program)).strip("\0\n ")
    finally:
        binding.destroyProgram(program)


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize("tier", TIERS)
def test_a_tiers_own_kernels_have_no_word_said_of_them(tier: str) -> None:
    sources = kernel_sources()
    (own,) = [each for each in units_of(sources, known_mask(TIERS[tier])) if each.mask is not None]
    assert len(own.files) > 9
    assert checked(sources, own) == ""


@pytest.mark.usefixtures("usable")
def test_red_a_text_that_only_a_known_mask_breaks() -> None:
    """A mask that is a constant is nothing to assign to; where it is not one, no word is said."""
    sources = kernel_sources()
    sources["sigmoid_gate.cu"] = sources["sigmoid_gate.cu"].replace(
        "variants = KNOWN(variants);", "variants = KNOWN(variants);\n  KNOWN(variants) = 1;"
    )
    assert checked(sources, Unit(("sigmoid_gate.cu",))) == ""
    with pytest.raises(nvrtc._binding().NVRTCError):
        checked(sources, Unit(("sigmoid_gate.cu",), 1))


@pytest.mark.usefixtures("usable")
def test_a_tiers_own_unit_is_other_code_and_holds_its_kernel_alone() -> None:
    sources, file = kernel_sources(), "sigmoid_gate.cu"
    codes = {}
    for mask in (None, *(known_mask(names) for names in TIERS.values())):
        unit = Unit((file,), mask)
        cubin, _ = nvrtc.compile_cubin(unit.of(sources), ARCH, nvrtc.unit_flags(unit))
        assert set(re.findall(rb"\.text\.(\w+)", cubin)) == {b"sigmoid_gate"}
        codes[mask] = cubin
    assert len(set(codes.values())) == 3
    assert max(codes, key=lambda mask: len(codes[mask])) is None  # it has what either takes


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize("wrong", ["-fmad=true", "-ftz=true"])
def test_red_flags_reach_the_compiler(wrong: str) -> None:
    """Also where a driver lets NVRTC keep what it compiled before with other flags."""
    name = wrong.split("=")[0]
    flags = tuple(wrong if flag.startswith(f"{name}=") else flag for flag in nvrtc.FLAGS)
    assert flags != nvrtc.FLAGS
    kept, _ = nvrtc.compile_cubin(FUSIBLE, ARCH)
    other, _ = nvrtc.compile_cubin(FUSIBLE, ARCH, flags)
    assert kept == nvrtc.compile_cubin(FUSIBLE, ARCH)[0]
    assert kept != other


@pytest.mark.usefixtures("usable")
def test_red_a_kernel_that_does_not_compile() -> None:
    sources = kernel_sources()
    sources["add.cu"] = sources["add.cu"].replace("if (j >= n) return;", "if (j >= m) return;")
    line = next(n for n, text in enumerate(sources["add.cu"].splitlines(), 1) if ">= m" in text)
    with pytest.raises(InputError, match=rf"does not compile for sm_90: add\.cu\({line}\): error:"):
        nvrtc.compile_cubin(sources, ARCH)


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize(("arch", "flags"), [("sm_1", nvrtc.FLAGS), (ARCH, ("-no-such-flag",))])
def test_red_an_impossible_option(arch: str, flags: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match=f"a kernel does not compile for {arch}: ") as raised:
        nvrtc.compile_cubin(FUSIBLE, arch, flags)
    assert "no message" not in raised.value.message


@pytest.mark.usefixtures("usable")
def test_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, hit = nvrtc.cached_cubin(FUSIBLE, ARCH, UNIT)
    assert (hit, first.read_bytes()) == (False, nvrtc.compile_cubin(FUSIBLE, ARCH)[0])
    assert nvrtc.cached_cubin(FUSIBLE, ARCH, UNIT) == (first, True)
    other_text = {"fusible.cu": FUSIBLE["fusible.cu"] + "// more\n"}
    others = [
        nvrtc.cached_cubin(other_text, ARCH, UNIT),
        nvrtc.cached_cubin(FUSIBLE, "sm_80", UNIT),
        nvrtc.cached_cubin(FUSIBLE, ARCH, Unit(("fusible.cu",), 0)),
        nvrtc.cached_cubin(FUSIBLE, ARCH, Unit(("fusible.cu",), 1)),
    ]
    monkeypatch.setattr(nvrtc, "FLAGS", ("-ftz=true",))
    others.append(nvrtc.cached_cubin(FUSIBLE, ARCH, UNIT))
    assert [hit for _, hit in others] == [False] * 5
    paths = {first, *(path for path, _ in others)}
    assert len(paths) == 6
    assert {path for path in cache.rglob("*") if path.is_file()} == paths


TEXTS = {"a.cu": "a", "b.cu": "b", "h.cuh": "h"}
UNITS = [Unit(("a.cu",)), Unit(("b.cu",)), Unit(("b.cu",), 7), Unit(("a.cu", "b.cu"), 7)]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the compiler is asked for: it makes the text of that, and no code."""
    asked: list[Any] = []

    def compiled(*given: Any) -> tuple[bytes, str]:
        asked.append(given)
        return repr(given).encode(), ""

    monkeypatch.setattr(nvrtc, "compile_cubin", compiled)
    monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: "NVRTC 0.0")
    return asked


@pytest.mark.usefixtures("cache")
def test_units_are_compiled_by_themselves(said: list[Any]) -> None:
    """One that is changed is compiled anew alone; a header is part of every unit."""
    paths = nvrtc.cached_cubins(TEXTS, ARCH, UNITS)
    flags = [nvrtc.FLAGS] * 2 + [(*nvrtc.FLAGS, "-DKNOWN_VARIANTS=7")] * 2
    wanted = [(unit.of(TEXTS), ARCH, each) for unit, each in zip(UNITS, flags, strict=True)]
    assert sorted(said, key=repr) == sorted(wanted, key=repr)
    held = [" ".join(sorted(texts)) for texts, *_ in wanted]
    assert held == ["a.cu h.cuh", "b.cu h.cuh", "b.cu h.cuh", "a.cu b.cu h.cuh"]
    assert {unit: path.read_bytes() for unit, path in paths.items()} == {
        unit: repr(given).encode() for unit, given in zip(UNITS, wanted, strict=True)
    }
    said.clear()
    assert nvrtc.cached_cubins(TEXTS, ARCH, UNITS) == paths
    assert said == []
    nvrtc.cached_cubins({**TEXTS, "a.cu": "A"}, ARCH, UNITS)
    assert sorted(" ".join(sorted(texts)) for texts, *_ in said) == [held[3], held[0]]
    assert {texts["a.cu"] for texts, *_ in said} == {"A"}
    said.clear()
    nvrtc.cached_cubins({**TEXTS, "h.cuh": "H"}, ARCH, UNITS)
    assert len(said) == len(UNITS)


@pytest.mark.usefixtures("cache", "said")
def test_units_are_compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits in the compiler until all are there."""
    all_there = threading.Barrier(len(UNITS), timeout=20)

    def compiled(*given: Any) -> tuple[bytes, str]:
        all_there.wait()
        return b"", ""

    monkeypatch.setattr(os, "cpu_count", lambda: len(UNITS))
    monkeypatch.setattr(nvrtc, "compile_cubin", compiled)
    assert set(nvrtc.cached_cubins(TEXTS, ARCH, UNITS)) == set(UNITS)


@pytest.mark.usefixtures("cache", "usable")
def test_red_a_unit_that_does_not_compile() -> None:
    """The other is kept all the same."""
    texts = {**FUSIBLE, "broken.cu": 'extern "C" __global__ void broken() { nothing(); }\n'}
    with pytest.raises(InputError, match=r"for sm_90: broken\.cu\(1\): error: .*nothing"):
        nvrtc.cached_cubins(texts, ARCH, units_of(texts, None))
    assert nvrtc.cached_cubin(texts, ARCH, UNIT)[1]
