"""Launches that overlap with the one ahead (programmatic dependent launch), through the driver.

CuPy has no door to them: ``cuLaunchKernelEx`` of libcuda is called with the attribute that lets a
launch begin early. The structures are those of cuda.h (CUDA 11.8 and later, which do not change).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from parity.errors import ParityBug

SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
FIRST_ARCH = 90
WORD = 8  # bytes that each argument gets: no kernel takes a larger one


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: a union of 64 bytes after the id, of which this one uses an int."""

    _fields_ = (
        ("id", ctypes.c_uint),
        ("pad", ctypes.c_char * 4),
        ("allowed", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    )


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


class Programmatic:
    """The driver's launch, opened; ``launch`` is taken in by a stream that is being captured."""

    def __init__(self, library: Any) -> None:
        self._launch = library.cuLaunchKernelEx
        pointers = (ctypes.POINTER(_Config), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._launch.argtypes = pointers
        self._launch.restype = ctypes.c_int

    def launch(
        self,
        function: int,
        stream: int,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        shared: int,
    ) -> None:
        """``function``, ``stream``: the driver's handles; args as ``Backend.launch`` takes them."""
        raw = b"".join(_bytes(arg).ljust(WORD, b"\0") for arg in args)
        values = ctypes.create_string_buffer(raw, len(raw) + WORD)
        at = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * len(args))(*(at + WORD * i for i in range(len(args))))
        attribute = _Attribute(SERIALIZATION, b"", 1, b"")
        config = _Config(_three(grid), _three(block), shared, stream, ctypes.pointer(attribute), 1)
        status = self._launch(ctypes.byref(config), function, pointers, None)
        if status:
            raise ParityBug(f"cuda: cuLaunchKernelEx gives {status}")


def open_programmatic(arch: int) -> Programmatic | str:
    """The launcher for a device of ``arch`` (90 for sm_90), or why there is none."""
    if arch < FIRST_ARCH:
        return f"sm_{arch} has none"
    try:
        return Programmatic(ctypes.CDLL("libcuda.so.1"))
    except (OSError, AttributeError):
        return "the driver has none"


def _bytes(arg: Any) -> bytes:
    """A NumPy scalar's value, or the address of an array on the device."""
    if isinstance(arg, np.generic):
        return arg.tobytes()
    return int(arg.data.ptr).to_bytes(WORD, "little")


def _three(sizes: Sequence[int]) -> Any:
    return (ctypes.c_uint * 3)(*sizes, *(1,) * (3 - len(sizes)))
