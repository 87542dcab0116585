"""NVRTC by ctypes, from NVIDIA's wheel: the calls of CuPy's binding, where CuPy is not installed.

Enough to compile and to read PTX without a GPU; the wheel alone is a fortieth of the CUDA toolkit.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

Pointers = ctypes.Array[ctypes.c_char_p]
_TEXT, _HANDLE = ctypes.c_char_p, ctypes.c_void_p


class NVRTCError(RuntimeError):
    """A call of NVRTC failed. Cause and way out: the program's log."""


class Library:
    """One libnvrtc, with the names that ``cupy_backends.cuda.libs.nvrtc`` gives its functions."""

    NVRTCError = NVRTCError

    def __init__(self, path: Path) -> None:
        """Load it. OSError: it does not load."""
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = _TEXT

    def _call(self, name: str, *args: object) -> None:
        status = getattr(self._library, f"nvrtc{name}")(*args)
        if status:
            raise NVRTCError(self._library.nvrtcGetErrorString(status).decode())

    def getVersion(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("Version", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def createProgram(
        self, text: str, name: str, headers: Sequence[bytes], names: Sequence[bytes]
    ) -> int:
        """A program of a text and of the headers it may include; its handle."""
        handle = _HANDLE()
        arrays = (_pointers(headers), _pointers(names))
        start = (ctypes.byref(handle), _TEXT(text.encode()), _TEXT(name.encode()))
        self._call("CreateProgram", *start, ctypes.c_int(len(headers)), *arrays)
        return handle.value or 0

    def compileProgram(self, program: int, options: Sequence[str]) -> None:
        """Compile it; NVRTCError when it does not, and the log says why."""
        given = _pointers([option.encode() for option in options])
        self._call("CompileProgram", _HANDLE(program), ctypes.c_int(len(options)), given)

    def getCUBIN(self, program: int) -> bytes:
        """The code for one architecture, after a compile for ``sm_N``."""
        return self._result("CUBIN", program)

    def getPTX(self, program: int) -> bytes:
        """The PTX, with a zero byte at its end."""
        return self._result("PTX", program)

    def getProgramLog(self, program: int) -> str:
        """All that the compiler said."""
        return self._result("ProgramLog", program).rstrip(b"\0").decode()

    def destroyProgram(self, program: int) -> None:
        """Give its memory back."""
        handle = _HANDLE(program)
        self._call("DestroyProgram", ctypes.byref(handle))

    def _result(self, what: str, program: int) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", _HANDLE(program), ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", _HANDLE(program), buffer)
        return buffer.raw


def _pointers(texts: Sequence[bytes]) -> Pointers:
    return (_TEXT * len(texts))(*texts)


@functools.cache
def open_wheel() -> Library:
    """The newest libnvrtc among the installed wheels; OSError where there is none."""
    found = find_spec("nvidia")
    folders = list(found.submodule_search_locations or ()) if found else []
    paths = [path for folder in folders for path in Path(folder).glob("*/lib/libnvrtc.so.*")]
    if not paths:
        raise OSError("neither CuPy nor a wheel of NVRTC is installed")
    return Library(max(paths, key=lambda path: int(path.suffix[1:])))
