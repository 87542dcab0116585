"""Elementary functions on a device: the replicas' bits, and what Kestrel saw of the library."""

from __future__ import annotations

import time

import numpy as np
import pytest

from parity.elementary.functions import FUNCTIONS, open_implementation
from parity.elementary.positions import check_positions
from parity_cuda.functions import DeviceFunctions, open_backend

pytestmark = pytest.mark.gpu

SEED = 20_261_205
DEVICE = ("cuda", "cuda-fast", "ucrt@cuda", "exp_via_double@cuda")


def uniform(low: float, high: float, n: int) -> np.ndarray:
    """Random arguments, float32."""
    return np.random.default_rng(SEED).uniform(low, high, n).astype(np.float32)


def bit_patterns(n: int) -> np.ndarray:
    """Random arguments of all kinds."""
    return np.random.default_rng(SEED).integers(0, 2**32, n, dtype=np.uint32).view(np.float32)


def differing(ref: np.ndarray, dut: np.ndarray) -> int:
    """How many results differ in bits, but for NaN against NaN (contract 1.10)."""
    other = ref.view(np.uint32) != dut.view(np.uint32)
    return int(np.count_nonzero(other & ~(np.isnan(ref) & np.isnan(dut))))


def share(ref: str, dut: str, function: str, x: np.ndarray) -> float:
    """Differing results, of 1."""
    sides = (open_implementation(name).evaluate(function, x) for name in (ref, dut))
    return differing(*sides) / x.size


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_replica_on_the_device_has_the_cpus_bits(function: str) -> None:
    assert share("ucrt", "ucrt@cuda", function, bit_patterns(1 << 24)) == 0.0


@pytest.mark.parametrize("name", DEVICE)
def test_it_says_what_decides_its_bits(name: str) -> None:
    described = open_implementation(name).describe()
    assert {"library", "device", "driver", "runtime", "compiler", "options"} <= set(described)
    assert described["runtime"].startswith("CUDA ")
    assert described["emulated"] == "no"


@pytest.mark.parametrize("name", DEVICE)
def test_places_change_nothing(name: str) -> None:
    opened = open_implementation(name)
    x = np.abs(np.random.default_rng(26).normal(0, 20, 1_001).astype(np.float32))
    for function in opened.functions:
        assert check_positions(opened, function, x) == []


def test_kestrels_shares() -> None:
    """The library's expf differs from the replica in 26 to 31 % of [-100, 0], by 2 ULP at most;
    its rsqrtf from 1/sqrtf in about 35 %; 1/sqrtf from itself never."""
    x = uniform(-100, 0, 400_002)
    ref, dut = (open_implementation(n).evaluate("expf", x) for n in ("ucrt", "cuda"))
    assert 0.26 < differing(ref, dut) / x.size < 0.31
    assert np.abs(ref.view(np.int32) - dut.view(np.int32)).max() <= 2
    assert 15 <= share("ucrt", "exp_via_double@cuda", "expf", x) * x.size <= 45
    positive = np.abs(bit_patterns(1 << 20))
    assert 0.3 < share("ucrt", "cuda", "rsqrt", positive[positive > 0]) < 0.4
    assert share("ucrt", "ucrt@cuda", "rsqrt", positive) == 0.0


def test_every_function_is_the_function_meant() -> None:
    """Against correct rounding on moderate arguments: 1e-6 of the largest result, or of 1, for the
    library, and 1e-5 for the intrinsics."""
    for function in FUNCTIONS:
        x = uniform(0.1, 3.0, 100_000)
        exact = open_implementation("correct").evaluate(function, x).astype(np.float64)
        for name, bound in (("cuda", 1e-6), ("cuda-fast", 1e-5)):
            found = open_implementation(name).evaluate(function, x)
            assert np.abs(found - exact).max() <= bound * max(1.0, np.abs(exact).max()), name


def test_the_intrinsics_are_not_the_library() -> None:
    x = uniform(-20, 20, 100_000)
    for function in ("expf", "cosf", "sinf", "sigmoid", "silu", "softplus"):
        assert share("cuda", "cuda-fast", function, x) > 0.01, function
    assert share("cuda", "cuda-fast", "logf", np.abs(x)) > 0.01
    assert share("cuda", "cuda-fast", "rsqrt", np.abs(x)) == 0.0


def test_float64_exp_is_nearly_this_platforms() -> None:
    x = np.random.default_rng(SEED).uniform(-100, 0, 400_002)
    there, here = (open_implementation(f"exp_via_double{at}") for at in ("@cuda", ""))
    ref, dut = here.exp64(x), there.exp64(x)
    assert np.abs(ref.view(np.int64) - dut.view(np.int64)).max() <= 2


def test_one_device_for_all_and_results_stay_there(capsys: pytest.CaptureFixture[str]) -> None:
    """2^32 results of each implementation's expf without a copy to the host: seconds."""
    opened = [open_implementation(name) for name in DEVICE]
    assert all(isinstance(one, DeviceFunctions) for one in opened)
    assert {id(one.backend) for one in opened} == {id(open_backend())}
    backend = open_backend()
    n = 1 << 28
    x = backend.upload(np.arange(n, dtype=np.uint32).view(np.float32))
    out = backend.empty((n,), np.float32)
    for one in opened:
        one.evaluate_into("expf", out, x)
        backend.download(out[:1])
        began = time.perf_counter()
        for _ in range(16):
            one.evaluate_into("expf", out, x)
        backend.download(out[:1])
        seconds = time.perf_counter() - began
        with capsys.disabled():
            print(f"\n  {one.name}: 16 times 2^28 expf in {seconds:.2f} s", end="")
        assert seconds < 5
