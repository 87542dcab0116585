"""``cublas.matmul``: cuBLAS by CuPy, asked directly (``cublasGemmEx``), no library between.

x (M, K) and w (N, K) are row-major, as of ``F.linear``: cuBLAS, which is column-major, is asked for
w transposed times x. Nothing here was chosen by CuPy: compute type 32F, default algorithm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from parity.errors import InputError, NotRunError
from parity.order.adapters.called import CalledOp, Floats, Library, spread
from parity.order.own.asked import needed
from parity.order.sums import Ask, refuse_unknown
from parity_cuda.cupy_backend import open_cupy

# cudaDataType, cublasComputeType_t, cublasGemmAlgo_t and cublasOperation_t of the CUDA headers.
TYPES = {"f32": 0, "f16": 2, "bf16": 14}
COMPUTE_32F, DEFAULT_ALGORITHM, NORMAL, TRANSPOSED = 68, -1, 0, 1


class CublasSums:
    """Family ``cublas``: ``matmul``. ``@out=f32`` keeps the sums of narrow inputs in f32."""

    def names(self) -> tuple[str, ...]:
        """Its one op."""
        return ("matmul",)

    def make(self, name: str, ask: Ask, M: int) -> CalledOp:
        """As ``SumFamily.make``; on a CUDA device alone."""
        op, K, N, dtype = f"cublas.{name}", ask.K, ask.N, ask.dtype
        refuse_unknown(op, ask.settings, ("row", "out"))
        out = ask.options.get("out", dtype)
        if out not in (dtype, "f32"):
            raise InputError(f"{op}: @out={out}", f"write @out={dtype} or @out=f32")
        if ask.device != "cuda":
            raise InputError(f"{op} runs on a CUDA device", "write --device cuda")
        picked = spread(op, ask.options, M, N)
        gemm = _Gemm(K, N, M, dtype, out)

        def call(x: Floats | None, w: Any) -> Any:
            return picked.pick(gemm.outputs(needed(x), w))

        key = {"op": op, "dtype": dtype, "out": out, **gemm.machine()}
        key |= {"shape": f"x ({M}, {K}), w ({N}, {K})", "batch": picked.told}
        library = Library(gemm.load, gemm.fetch)
        return CalledOp(op, K, N, "products", dtype, out, call, key, picked.batch, library)


class _Gemm:
    """One shape of cublasGemmEx."""

    def __init__(self, K: int, N: int, M: int, dtype: str, out: str) -> None:
        self._sizes, self._dtype, self._out = (K, N, M), dtype, out
        try:
            self._cupy = open_cupy()
            from cupy.cuda import cublas
        except NotRunError as error:
            raise NotRunError(error.message, "cublas needs CuPy and a CUDA device") from error
        except ImportError as error:
            raise NotRunError(
                f"cuBLAS cannot be loaded: {error}", "install the CUDA library cuBLAS"
            ) from error
        self._cublas = cublas

    def machine(self) -> dict[str, str]:
        """Device and versions."""
        cupy, cublas = self._cupy, self._cublas
        name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
        version = cublas.getVersion(cupy.cuda.device.get_cublas_handle())
        return {"device": name, "cublas": str(version), "cupy": cupy.__version__}

    def load(self, w: Floats, rows: int) -> list[Any]:
        """w as bit patterns on the device, an array of its own for each call."""
        made = self._sent(w)
        if len(w) == rows:
            return [made]
        return [made[at : at + rows].copy() for at in range(0, len(w), rows)]

    def fetch(self, found: list[Any]) -> npt.NDArray[np.float32]:
        """The float32 values of what calls gave, one after the other."""
        bits = self._cupy.concatenate(found).get()
        values: npt.NDArray[np.float32]
        if self._out == "f16":
            values = bits.view(np.float16).astype(np.float32)
        else:
            wide = bits if self._out == "f32" else bits.astype(np.uint32) << 16
            values = wide.view(np.float32)
        return values

    def outputs(self, x: Floats, w: Any) -> Any:
        """(M, N) of x, (K,) for each of M rows or (M, K), and w (N, K) as loaded: bit patterns."""
        K, N, M = self._sizes
        cupy, cublas = self._cupy, self._cublas
        xs = self._sent(np.ascontiguousarray(np.broadcast_to(x, (M, K))))
        found = cupy.empty((M, N), np.uint32 if self._out == "f32" else np.uint16)
        alpha, beta = np.array([1], np.float32), np.array([0], np.float32)
        inputs, outputs = TYPES[self._dtype], TYPES[self._out]
        handle = cupy.cuda.device.get_cublas_handle()
        cublas.gemmEx(
            *(handle, TRANSPOSED, NORMAL, N, M, K, alpha.ctypes.data),
            *(w.data.ptr, inputs, K, xs.data.ptr, inputs, K, beta.ctypes.data),
            *(found.data.ptr, outputs, N, COMPUTE_32F, DEFAULT_ALGORITHM),
        )
        return found

    def _sent(self, values: Floats) -> Any:
        """``values``, exact in the op's dtype, as bit patterns of it on the device."""
        cupy = self._cupy
        made = cupy.asarray(np.ascontiguousarray(values))
        if self._dtype == "f16":
            return made.astype(np.float16).view(np.uint16)
        return made if self._dtype == "f32" else made.view(np.uint16)[..., 1::2].copy()
