"""NVRTC as the engine uses it: flags, messages, the cache. No device is needed, only its wheel."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from parity.errors import InputError, NotRunError
from parity_cuda import nvrtc, nvrtc_wheel
from parity_cuda.sources import kernel_sources
from tests.engines.needed import lack

ARCH = "sm_90"
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
    cubin, log = nvrtc.compile_cubin(kernel_sources(), ARCH)
    assert cubin.startswith(b"\x7fELF")
    assert b"attention_int8" in cubin
    assert log.strip("\0\n ") == ""


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
    first, hit = nvrtc.cached_cubin(FUSIBLE, ARCH)
    assert (hit, first.read_bytes()) == (False, nvrtc.compile_cubin(FUSIBLE, ARCH)[0])
    assert nvrtc.cached_cubin(FUSIBLE, ARCH) == (first, True)
    other_text = {"fusible.cu": FUSIBLE["fusible.cu"] + "// more\n"}
    others = [nvrtc.cached_cubin(other_text, ARCH), nvrtc.cached_cubin(FUSIBLE, "sm_80")]
    monkeypatch.setattr(nvrtc, "FLAGS", ("-ftz=true",))
    others.append(nvrtc.cached_cubin(FUSIBLE, ARCH))
    assert [hit for _, hit in others] == [False] * 3
    paths = {first, *(path for path, _ in others)}
    assert len(paths) == 4
    assert {path for path in cache.rglob("*") if path.is_file()} == paths
