"""Every kernel on a real device: the oracle's cases, the UCRT's results, the start-up self-test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from parity.errors import NotRunError
from parity.protocol import EngineSettings
from parity_cpu.ops.elementary import ELEMENTARY, map_elementary
from parity_cuda import nvrtc
from parity_cuda.cupy_backend import CupyBackend
from parity_cuda.selftest import check_arithmetic
from parity_cuda.sources import Unit, kernel_sources
from tests.engines.cuda.op_runner import OpRunner
from tests.engines.cuda.twin_cases import TABLES, check_by_twin
from tests.oracle import check
from tests.oracle.inputs import OPS
from tests.oracle.variants import OF_OP, sets_of

pytestmark = pytest.mark.gpu

GOLDEN = Path(__file__).parents[2] / "golden"
ROUTINES = ("expf", "cosf", "sinf", "logf")
SEED = 20_261_130
RANDOM = 1 << 22

# Variants whose functions are the device's: their bits are not those of a CPU (contract 5).
DEVICE_OWN = {"rsqrt", "libm_exp", "libm_sincos", "exp_via_double"}

Bits = npt.NDArray[np.uint32]


@pytest.fixture(scope="module")
def backend() -> CupyBackend:
    """The device with the kernels as they ship."""
    return CupyBackend(EngineSettings())


@pytest.fixture(autouse=True)
def _quiet_numpy() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def with_flags(monkeypatch: pytest.MonkeyPatch, file: str, *wrong: str) -> CupyBackend:
    """A device with the kernels of one file, compiled with other flags."""
    names = [flag.split("=")[0] for flag in wrong]
    flags = [flag for flag in nvrtc.FLAGS if flag.split("=")[0] not in names]
    assert len(flags) == len(nvrtc.FLAGS) - len(wrong)
    monkeypatch.setattr(nvrtc, "FLAGS", (*flags, *wrong))
    return CupyBackend(EngineSettings(), Unit((file,)).of(kernel_sources()))


def bits_by_gpu(backend: CupyBackend, name: str, x: Bits) -> Bits:
    """Result bits of the device for argument bits x."""
    out, arguments = backend.upload(np.zeros_like(x)), backend.upload(x)
    backend.launch(f"map_{name}", (1024,), 256, [out, arguments, np.int64(x.size)])
    return backend.download(out)


def bits_by_numba(name: str, x: Bits) -> Bits:
    """Result bits of the Numba twin."""
    out = np.empty(x.shape, np.float32)
    map_elementary(name)(out, x.view(np.float32))
    return out.view(np.uint32)


def is_nan(bits: Bits) -> npt.NDArray[np.bool_]:
    return (bits & 0x7FFFFFFF) > 0x7F800000


def words(values: Any) -> list[str]:
    return [f"{int(value):08x}" for value in values[:20]]


# --- ops ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
def test_kernel_has_the_oracles_bytes(backend: CupyBackend, op: str) -> None:
    assert check.check_op(op, OpRunner(backend, "cuda").run) > 5


@pytest.mark.parametrize("op", TABLES)
def test_kernel_has_the_numba_twins_bytes(backend: CupyBackend, op: str) -> None:
    assert check_by_twin(op, OpRunner(backend, "cuda").run_for) > 1


@pytest.mark.parametrize("op", [op for op in OF_OP if set(OF_OP[op]) - DEVICE_OWN])
def test_kernel_with_variants_has_the_oracles_bytes(backend: CupyBackend, op: str) -> None:
    """Every set of variants but those that take a function of the device's own."""
    run = OpRunner(backend, "cuda").run_variants
    sets = [names for names in sets_of(op) if not names & DEVICE_OWN]
    assert sum(check.check_variants(op, names, run) for names in sets) > 5


def test_red_an_op_without_its_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel in which every subnormal is flushed: the oracle's cases see it."""
    runner = OpRunner(with_flags(monkeypatch, "quant8.cu", "-ftz=true"), "flushing")
    with pytest.raises(check.OpMismatch, match="differ, first at"):
        check.check_op("quant8", runner.run)


# --- elementary functions -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROUTINES)
def test_golden_points(backend: CupyBackend, name: str) -> None:
    with np.load(GOLDEN / f"ucrt_{name}.npz") as data:
        x, y = data["x"], data["y"]
    assert x.size == 200_000
    wrong = bits_by_gpu(backend, name, x) != y
    print(f"{name}: {int(wrong.sum())} of {x.size:,} golden points differ")
    assert words(x[wrong]) == []


@pytest.mark.parametrize("name", ELEMENTARY)
def test_random_bit_patterns(backend: CupyBackend, name: str) -> None:
    """All bits equal, but where arithmetic on a NaN gave one: the device has a single NaN for
    that, x86 keeps payloads (contract 1.10)."""
    x = np.random.default_rng(SEED).integers(0, 1 << 32, RANDOM, dtype=np.uint32)
    ref, dut = bits_by_numba(name, x), bits_by_gpu(backend, name, x)
    differ = ref != dut
    payload = differ & is_nan(ref) & is_nan(dut)
    print(f"{name}: {int(differ.sum())} of {x.size:,} differ, {int(payload.sum())} of them NaNs")
    assert words(x[differ & ~payload]) == []
    assert (is_nan(x)[payload]).all()
    if name in ROUTINES:
        assert not payload.any()


def test_red_one_golden_point(backend: CupyBackend) -> None:
    """The comparison sees one wrong result of 200,000."""
    with np.load(GOLDEN / "ucrt_expf.npz") as data:
        x, y = data["x"], data["y"].copy()
    y[77_777] ^= 1
    assert np.flatnonzero(bits_by_gpu(backend, "expf", x) != y).tolist() == [77_777]


# --- start-up self-test ---------------------------------------------------------------------------


def test_the_build_passes_its_self_test(backend: CupyBackend) -> None:
    check_arithmetic(backend, "cuda", 0)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("-ftz=true", "flushes subnormals to zero"),
        ("-fmad=true", r"contracts a\*b\+c into one rounding"),
    ],
)
def test_red_self_test(monkeypatch: pytest.MonkeyPatch, flag: str, said: str) -> None:
    planted = with_flags(monkeypatch, "selftest.cu", flag)
    with pytest.raises(NotRunError, match=said):
        check_arithmetic(planted, "cuda", 0)
