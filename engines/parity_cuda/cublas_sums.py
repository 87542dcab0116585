"""``cublas.matmul``: cuBLAS by CuPy, asked directly (``cublasGemmEx``), no library between.

x (M, K) and w (N, K) are row-major, as of ``F.linear``: cuBLAS, which is column-major, is asked for
w transposed times x. Nothing here was chosen by CuPy: compute type 32F, default algorithm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from parity.errors import InputError, NotRunError
from parity.order.adapters.called import CalledOp, Floats, spread
from parity.order.own.asked import needed
from parity.order.sums import refuse_unknown
from parity.order.tree import Format
from parity_cuda.cupy_backend import open_cupy

# cudaDataType, cublasComputeType_t, cublasGemmAlgo_t and cublasOperation_t of the CUDA headers.
TYPES = {"f32": 0, "f16": 2, "bf16": 14}
COMPUTE_32F, DEFAULT_ALGORITHM, NORMAL, TRANSPOSED = 68, -1, 0, 1


class CublasSums:
    """Family ``cublas``: ``matmul``. ``@out=f32`` keeps the sums of narrow inputs in f32."""

    def names(self) -> tuple[str, ...]:
        """Its one op."""
        return ("matmul",)

    def make(
        self,
        name: str,
        *,
        K: int,
        N: int,
        M: int,
        dtype: Format,
        device: str,
        options: Mapping[str, str],
    ) -> CalledOp:
        """As ``SumFamily.make``; on a CUDA device alone."""
        op = f"cublas.{name}"
        refuse_unknown(op, options, ("row", "out"))
        out = options.get("out", dtype)
        if out not in (dtype, "f32"):
            raise InputError(f"{op}: @out={out}", f"write @out={dtype} or @out=f32")
        if device != "cuda":
            raise InputError(f"{op} runs on a CUDA device", "write --device cuda")
        picked = spread(op, options, M, N)
        gemm = _Gemm(K, N, M, dtype, out)

        def call(x: Floats | None, w: Floats) -> npt.NDArray[Any]:
            return picked.pick(gemm.outputs(needed(x), w))

        key = {"op": op, "dtype": dtype, "out": out, **gemm.machine()}
        key |= {"shape": f"x ({M}, {K}), w ({N}, {K})", "batch": picked.told}
        return CalledOp(op, K, N, "products", dtype, out, call, key)


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

    def outputs(self, x: Floats, w: Floats) -> npt.NDArray[np.float32]:
        """(M, N) of x (K,), the same in each of M rows, and w (N, K)."""
        K, N, M = self._sizes
        cupy, cublas = self._cupy, self._cublas
        xs = cupy.asarray(np.ascontiguousarray(np.broadcast_to(_bits(x, self._dtype), (M, K))))
        ws = cupy.asarray(_bits(w, self._dtype))
        kind = np.uint32 if self._out == "f32" else np.uint16
        found = cupy.empty((M, N), kind)
        alpha, beta = np.array([1], np.float32), np.array([0], np.float32)
        inputs, outputs = TYPES[self._dtype], TYPES[self._out]
        handle = cupy.cuda.device.get_cublas_handle()
        cublas.gemmEx(
            *(handle, TRANSPOSED, NORMAL, N, M, K, alpha.ctypes.data),
            *(ws.data.ptr, inputs, K, xs.data.ptr, inputs, K, beta.ctypes.data),
            *(found.data.ptr, outputs, N, COMPUTE_32F, DEFAULT_ALGORITHM),
        )
        return _floats(found.get(), self._out)


def _bits(values: Floats, dtype: str) -> npt.NDArray[Any]:
    """``values``, exact in ``dtype``, as the bit patterns of that dtype."""
    if dtype == "f32":
        return np.ascontiguousarray(values).view(np.uint32)
    if dtype == "f16":
        return values.astype(np.float16).view(np.uint16)
    return (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16)


def _floats(bits: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float32]:
    """The float32 values of bit patterns of ``dtype``."""
    if dtype == "f16":
        return bits.view(np.float16).astype(np.float32)
    wide = bits if dtype == "f32" else bits.astype(np.uint32) << 16
    return wide.astype(np.uint32).view(np.float32)
