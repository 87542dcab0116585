"""Elementary functions on the device: its library, its intrinsics, and the replicas.

All share one backend, so arguments and results of any two can stay on the device.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from parity.elementary.functions import FUNCTIONS, ResidentImplementation
from parity.errors import NotRunError
from parity.protocol import EngineSettings
from parity_cuda.backend import Backend, Buffer
from parity_cuda.cupy_backend import CupyBackend
from parity_cuda.sources import function_sources
from parity_cuda.tally import DevicePairs

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

BLOCK = 256
GRID = 4096  # at most; further elements are taken in strides
NO_DEVICE = (
    "it takes an NVIDIA GPU and parity's extra cuda13 (or cuda12); "
    "the emulator has no device functions"
)


class FunctionBackend(CupyBackend):
    """The device with the kernels of ``function_sources``."""

    def info(self) -> Mapping[str, str]:
        """What CupyBackend says, and the CUDA runtime that CuPy was built for."""
        version = self._cupy.cuda.runtime.runtimeGetVersion()
        return {**super().info(), "runtime": f"CUDA {version // 1000}.{version % 1000 // 10}"}


@functools.cache
def open_backend() -> FunctionBackend:
    """The device, opened once a process; NotRunError where there is none."""
    try:
        return FunctionBackend(EngineSettings(), function_sources())
    except NotRunError as error:
        raise NotRunError(error.message, NO_DEVICE) from error


class DeviceFunctions:
    """What the implementations on the device have in common; ``backend``: None for the device."""

    name = ""
    functions: tuple[str, ...] = FUNCTIONS
    origin = ""
    kernels = ""

    def __init__(self, backend: Backend | None = None) -> None:
        self.backend = open_backend() if backend is None else backend

    def describe(self) -> Mapping[str, str]:
        """The library, device, driver, runtime, compiler, options and digest of the kernels."""
        return {"library": self.origin, **self.backend.info()}

    def evaluate(self, function: str, x: Floats) -> Floats:
        """``function`` of x, (n,) float32 to (n,) float32."""
        given = self.backend.upload(np.ascontiguousarray(x))
        out = self.backend.empty(x.shape, np.float32)
        self.evaluate_into(function, out, given)
        return self.backend.download(out)

    def evaluate_into(self, function: str, out: Buffer, x: Buffer) -> None:
        """``function`` of the n floats of buffer x, into buffer ``out`` of n floats; no wait."""
        launch_map(self.backend, f"{self.kernels}_{function}", out, x)

    def pair_source(self, function: str, dut: ResidentImplementation, bounded: bool) -> DevicePairs:
        """Its results with those of ``dut`` on the same backend, counted there."""
        return DevicePairs(function, self, dut, bounded)


class DeviceLibrary(DeviceFunctions):
    """The device's expf, cosf, sinf, logf and rsqrtf, compiled without fast math; sigmoid, silu and
    softplus composed of its expf and logf as contract 1.9 does, with a rounded division. The
    library is written in fma's: -fmad changes none of its bits."""

    name = "cuda"
    origin = "CUDA device library"
    kernels = "device_map"


class DeviceIntrinsics(DeviceFunctions):
    """__expf, __cosf, __sinf, __logf; sigmoid, silu and softplus composed of these as contract 1.9
    does, with __fdividef. rsqrt is rsqrtf, which has no faster form."""

    name = "cuda-fast"
    origin = "CUDA fast intrinsics"
    kernels = "fast_map"


class DeviceReplica(DeviceFunctions):
    """The replicas of contract 4 on the device, and what 1.1 and 1.9 build on them: the bits of
    ``ucrt``."""

    name = "ucrt@cuda"
    origin = "replica of the x64 UCRT, FMA3 path"
    kernels = "map"


class DeviceExpViaDouble(DeviceFunctions):
    """The variant exp_via_double of contract 5 with the device's float64 exp; softplus keeps the
    replica's logf."""

    name = "exp_via_double@cuda"
    functions = ("expf", "sigmoid", "silu", "softplus")
    origin = "float64 exp of the CUDA device library"
    kernels = "double_map"

    def exp64(self, x: Doubles) -> Doubles:
        """The float64 exp itself, (n,) float64 to (n,) float64."""
        given = self.backend.upload(np.ascontiguousarray(x))
        out = self.backend.empty(x.shape, np.float64)
        launch_map(self.backend, "map_exp64", out, given)
        return self.backend.download(out)


def launch_map(backend: Backend, kernel: str, out: Buffer, x: Buffer) -> None:
    """One kernel of map_elements.cuh over all n elements."""
    n = int(np.prod(x.shape))
    grid = max(1, min(GRID, -(-n // BLOCK)))
    backend.launch(kernel, (grid,), BLOCK, [out, x, np.int64(n)])
