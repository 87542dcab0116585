"""The functions' kernels without a device: emulated where they are replicas, compiled where not."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest

from parity.elementary.functions import open_implementation
from parity.protocol import EngineSettings
from parity_cuda import nvrtc
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.functions import DeviceExpViaDouble, DeviceReplica
from parity_cuda.sources import function_sources, kernel_sources
from tests.engines.cuda import ptx

SEED = 20_261_204
# The emulator has no device library, and tells so at the build.
REPLICAS = ("replica.cu", "map_elementary.cu")


def emulated() -> dict[str, str]:
    """The units of the replicas, with the headers."""
    sources = function_sources()
    return {name: sources[name] for name in sources if name in REPLICAS or name[-4:] == ".cuh"}


@pytest.fixture(scope="module")
def backend() -> EmuBackend:
    return EmuBackend(EngineSettings(), emulated())


def arguments() -> np.ndarray:
    """Random bit patterns, and common arguments."""
    rng = np.random.default_rng(SEED)
    random = rng.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    return np.concatenate([random, rng.normal(0, 10, 20_000).astype(np.float32)])


def differing(ref: np.ndarray, dut: np.ndarray) -> list[int]:
    """Indices of other bits, but for NaN against NaN (contract 1.10)."""
    other = ref.view(np.uint32) != dut.view(np.uint32)
    return np.flatnonzero(other & ~(np.isnan(ref) & np.isnan(dut))).tolist()


@pytest.mark.parametrize("function", DeviceReplica.functions)
def test_the_replica_has_the_cpus_bits(backend: EmuBackend, function: str) -> None:
    x = arguments()
    on_device = DeviceReplica(backend)
    wanted = open_implementation("ucrt").evaluate(function, x)
    assert differing(wanted, on_device.evaluate(function, x)) == []
    assert differing(wanted[::-3], on_device.evaluate(function, x[::-3])) == []


@pytest.mark.parametrize("function", DeviceExpViaDouble.functions)
def test_exp_via_double_is_composed_alike(backend: EmuBackend, function: str) -> None:
    """The emulator's stand-in for the device's exp is the C library's."""
    x = arguments()
    wanted = open_implementation("exp_via_double").evaluate(function, x)
    assert differing(wanted, DeviceExpViaDouble(backend).evaluate(function, x)) == []


def test_float64_exp(backend: EmuBackend) -> None:
    x = np.linspace(-745.5, 710.0, 5_001)
    found = DeviceExpViaDouble(backend).exp64(x)
    assert found.tobytes() == open_implementation("exp_via_double").exp64(x).tobytes()


def test_results_stay_on_the_device(backend: EmuBackend) -> None:
    replica, double = DeviceReplica(backend), DeviceExpViaDouble(backend)
    assert replica.backend is double.backend
    x = arguments()[:1_000]
    given, out = backend.upload(x), backend.empty(x.shape, np.float32)
    replica.evaluate_into("silu", out, given)
    assert backend.download(out).tobytes() == replica.evaluate("silu", x).tobytes()


def test_it_says_where_it_ran(backend: EmuBackend) -> None:
    described = DeviceReplica(backend).describe()
    assert described["library"] == "replica of the x64 UCRT, FMA3 path"
    assert described["emulated"] == "yes"


def test_red_a_wrong_root_is_seen() -> None:
    sources = emulated()
    right = "return inverse_root(x, 0);"
    assert sources["replica.cu"].count(right) == 1
    wrong = sources["replica.cu"].replace(right, "return inverse_root(x, RSQRT);")
    planted = DeviceReplica(EmuBackend(EngineSettings(), {**sources, "replica.cu": wrong}))
    x = arguments()
    wanted = open_implementation("ucrt").evaluate("rsqrt", x)
    assert len(differing(wanted, planted.evaluate("rsqrt", x))) > 1_000


# --- what the compiler makes of them --------------------------------------------------------------


@pytest.fixture(scope="module", params=list(ptx.COMPILERS))
def compiler(request: pytest.FixtureRequest) -> str:
    """One of the compilers, or a skip that says which is missing."""
    if reason := ptx.missing(request.param):
        pytest.skip(reason)
    return str(request.param)


def instructions(compiler: str, flags: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Kernel to its instructions' names."""
    return ptx.instructions(ptx.COMPILERS[compiler](function_sources(), "sm_90", flags))


@pytest.fixture(scope="module")
def compiled(compiler: str) -> Mapping[str, list[str]]:
    """The kernels as the engine's flags make them."""
    return instructions(compiler, nvrtc.FLAGS)


def test_every_function_has_its_kernel(compiled: Mapping[str, list[str]]) -> None:
    kernels = set(compiled)
    for prefix in ("map", "device_map", "fast_map"):
        assert {f"{prefix}_{function}" for function in DeviceReplica.functions} <= kernels
    assert {f"double_map_{function}" for function in DeviceExpViaDouble.functions} <= kernels


def test_approximations_are_where_the_names_say(compiled: Mapping[str, list[str]]) -> None:
    found = {
        kernel: {name for name in names if ".approx" in name} for kernel, names in compiled.items()
    }
    assert found["fast_map_expf"] == {"ex2.approx.f32"}
    assert found["fast_map_cosf"] == {"cos.approx.f32"}
    assert found["fast_map_sinf"] == {"sin.approx.f32"}
    assert found["fast_map_logf"] == {"lg2.approx.f32"}
    assert found["device_map_rsqrt"] == found["fast_map_rsqrt"] == {"rsqrt.approx.f32"}
    assert found["device_map_cosf"] == found["device_map_sinf"] == set()
    exact = {kernel: names for kernel, names in found.items() if re.match("(double_)?map_", kernel)}
    assert set().union(*exact.values()) == set()


def test_the_library_does_not_depend_on_fmad(
    compiler: str, compiled: Mapping[str, list[str]]
) -> None:
    """Its code is written in fma's: with contraction allowed only the names' .rn is left out."""
    allowed = tuple("-fmad=true" if flag == "-fmad=false" else flag for flag in nvrtc.FLAGS)
    other = instructions(compiler, allowed)
    for kernel, plain in compiled.items():
        names = [re.sub(r"^(mul|add|sub)\.rn\b", r"\1", name) for name in plain]
        there = [re.sub(r"^(mul|add|sub)\.rn\b", r"\1", name) for name in other[kernel]]
        assert names == there, kernel


def test_the_engines_kernels_hold_none_of_these() -> None:
    assert {"library.cu", "replica.cu"} & set(kernel_sources()) == set()
    assert {"library.cu", "replica.cu", "variants.cuh"} <= set(function_sources())
