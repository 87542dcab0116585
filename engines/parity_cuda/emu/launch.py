"""Launch the kernels of a built module. A small launch costs a few microseconds: see ``launch``."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from parity.errors import NotRunError, ParityBug
from parity_cuda.emu.build import BuiltModule
from parity_cuda.emu.guard import guarded

Array = np.ndarray[Any, np.dtype[Any]]
Argument = Array | np.generic
OrderName = Literal["ascending", "descending", "shuffled"]

_ORDERS: dict[str, int] = {"ascending": 0, "descending": 1, "shuffled": 2}  # enum Order
_SHAPE = struct.Struct("=6IQ")  # struct Spec, first half: grid, block, shared_bytes
_SCHEDULE = struct.Struct("=Q4I")  # second half: seed, order, threads, strict, poison
_ONES = (1, 1, 1)
# Views an array's memory as nothing, for its address; refuses what is read-only or not contiguous.
_view: Callable[[Any], ctypes.Array[ctypes.c_char]] = (ctypes.c_char * 0).from_buffer
# NumPy's fixed-width scalars: width, and 'f' or 'i' as in struct Parameter.
_SCALARS: dict[type, tuple[int, str]] = {
    kind: (np.dtype(kind).itemsize, "f" if issubclass(kind, np.floating) else "i")
    for kind in np.sctypeDict.values()
    if issubclass(kind, np.integer | np.floating | np.bool_) and np.dtype(kind).itemsize <= 8
}
MOST_AWAKE = 4  # modules that keep the stacks of their emulated threads
_RUNTIMES = {"asan": "__asan_init", "tsan": "__tsan_init"}


class KernelFault(ParityBug):
    """A kernel broke a rule of the device: a deadlock, a divergent barrier, a wrong mask.

    Cause: the kernel or its launch. Way out: the message names kernel, block, thread and line.
    """


@dataclass(frozen=True)
class Schedule:
    """In which order threads and blocks run: no order may change a bit of a correct kernel.

    ``seed`` matters for ``shuffled`` alone. ``threads`` is the number of OS threads that share
    the blocks. ``strict`` makes it a fault when a barrier is not reached by every thread at the
    same line, or when a thread has returned before it. ``poison`` is the byte that fills shared
    memory before each block: no value may change a bit, either.
    """

    order: OrderName
    seed: int = 0
    threads: int = 1
    strict: bool = True
    poison: int = 0xFF

    def __post_init__(self) -> None:
        """Refuse what the scheduler has no meaning for."""
        if self.order not in _ORDERS:
            raise ParityBug(f"no schedule {self.order!r}: one of {', '.join(_ORDERS)}")
        if not 1 <= self.threads <= 1024:
            raise ParityBug(f"a schedule has 1 to 1024 threads, not {self.threads}")
        if not 0 <= self.poison <= 0xFF:
            raise ParityBug(f"a poison is a byte, not {self.poison}")

    @cached_property
    def packed(self) -> bytes:
        """The second half of ``struct Spec``, made once."""
        seed = self.seed % 2**64
        return _SCHEDULE.pack(seed, _ORDERS[self.order], self.threads, self.strict, self.poison)


class _Parameter(ctypes.Structure):
    """``struct Parameter`` of emu_launch.h."""

    _fields_ = (
        ("bytes", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("pointee", ctypes.c_uint32),
    )


class _Entry(ctypes.Structure):
    """``struct Kernel`` of emu_launch.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("call", ctypes.c_void_p),
        ("parameters", ctypes.POINTER(_Parameter)),
        ("count", ctypes.c_uint64),
    )


def _number(row: _Parameter) -> tuple[int, str] | None:
    """Width and kind of a number, as in _SCALARS; None for a pointer."""
    kind = chr(row.kind)
    return None if kind in "pc" else (row.bytes, kind)


class _Kernel:
    """One kernel's parameters, and how its arguments are packed: 8 bytes each."""

    def __init__(self, index: int, entry: _Entry) -> None:
        self.index = index
        self.name = entry.name.decode()
        rows = [entry.parameters[i] for i in range(entry.count)]
        self.parameters = [(chr(row.kind), row.pointee, _number(row)) for row in rows]
        numbers = [number for *_, number in self.parameters]
        layout = (f"{number[0]}s{8 - number[0]}x" if number else "Q" for number in numbers)
        self._struct = struct.Struct("=" + "".join(layout))

    def pack(self, args: Sequence[Argument]) -> bytes:
        """Return the arguments as the kernel's thunk reads them; ParityBug where one is wrong."""
        if len(args) != len(self.parameters):
            message = f"{len(self.parameters)} arguments, not {len(args)}"
            raise ParityBug(f"kernel {self.name} takes {message}")
        words: list[int | bytes] = []
        for (kind, pointee, number), arg in zip(self.parameters, args, strict=True):
            if number is not None:
                if _SCALARS.get(type(arg)) != number:
                    what = "a float" if kind == "f" else "an integer"
                    raise self._wrong(len(words), f"{what} of {number[0]} bytes", arg)
                words.append(bytes(arg.data))
                continue
            if not isinstance(arg, np.ndarray) or (pointee and arg.itemsize != pointee):
                raise self._wrong(len(words), f"a pointer to {pointee or 'any'} bytes", arg)
            try:
                words.append(ctypes.addressof(_view(arg)))
            except (TypeError, ValueError):
                words.append(self._address(len(words), kind, arg))
        return self._struct.pack(*words)

    def _address(self, index: int, kind: str, array: Array) -> int:
        if not array.flags.c_contiguous:
            raise self._wrong(index, "a C-contiguous array", array)
        if kind == "p" and not array.flags.writeable:
            raise self._wrong(index, "an array that it may write", array)
        return int(array.__array_interface__["data"][0])

    def _wrong(self, index: int, wanted: str, arg: object) -> ParityBug:
        if isinstance(arg, np.ndarray):
            given = f"{arg.dtype}{list(arg.shape)}, strides {arg.strides}"
            given += "" if arg.flags.writeable else ", read-only"
        else:
            given = f"{type(arg).__name__} {arg!r}"
        return ParityBug(f"kernel {self.name}, argument {index}: takes {wanted}, not {given}")


class EmuModule:
    """The kernels of one built module, loaded into this process."""

    _awake: ClassVar[list[EmuModule]] = []
    _turn: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, built: BuiltModule) -> None:
        """Load the library. NotRunError: its sanitizer's runtime is not in this process."""
        runtime = _RUNTIMES.get(built.mode)
        if runtime and not hasattr(ctypes.CDLL(None), runtime):
            advice = f"start a process with sanitizer_env({built.mode!r}) and load it there"
            raise NotRunError(f"this process has no {built.mode} runtime", advice)
        self.built = built
        library = ctypes.CDLL(str(built.path))
        self._launch = library.emu_launch
        self._launch.argtypes = (ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p)
        self._launch.restype = ctypes.c_void_p
        self._free = library.emu_free
        self._free.argtypes = (ctypes.c_void_p,)
        self._free.restype = None
        self._rest = library.emu_rest
        self._rest.argtypes = ()
        self._rest.restype = None
        entries = (ctypes.POINTER(_Entry) * len(built.kernels)).in_dll(library, "emu_kernels")
        kernels = (_Kernel(index, entry.contents) for index, entry in enumerate(entries))
        self._kernels = {kernel.name: kernel for kernel in kernels}

    def launch(
        self,
        name: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Argument],
        shared_bytes: int = 0,
        *,
        schedule: Schedule,
    ) -> None:
        """Run a kernel to its end.

        ``grid`` and ``block`` have 1 to 3 entries. An array is passed as its pointer and must be
        C-contiguous; a NumPy scalar is passed by value. Raises ParityBug for an argument of
        another count or width, and KernelFault, which is one, for what the kernel does wrong.
        """
        kernel = self._kernels.get(name)
        if kernel is None:
            raise ParityBug(f"no kernel {name!r} in this module: {', '.join(self._kernels)}")
        try:
            shape = _SHAPE.pack(*(grid + _ONES)[:3], *(block + _ONES)[:3], shared_bytes)
        except struct.error:
            message = f"grid {grid}, block {block}, {shared_bytes} bytes of shared memory"
            raise ParityBug(f"kernel {name}: no such launch: {message}") from None
        self._wake()
        packed = kernel.pack(args)
        if self.built.mode == "asan":
            with guarded(args) as copies:
                message = self._launch(kernel.index, shape + schedule.packed, kernel.pack(copies))
        else:
            message = self._launch(kernel.index, shape + schedule.packed, packed)
        if message:
            raise self._fault(name, message)

    def _wake(self) -> None:
        """A stack takes two mappings, of which a process has some 65,000: without this the launches
        of dozens of modules leave none, and not even a thread can be started."""
        with self._turn:
            if self._awake[-1:] == [self]:
                return
            if self in self._awake:
                self._awake.remove(self)
            self._awake.append(self)
            while len(self._awake) > MOST_AWAKE:
                self._awake.pop(0)._rest()

    def _fault(self, name: str, message: int) -> KernelFault:
        text = ctypes.string_at(message).decode(errors="replace")
        self._free(message)
        return KernelFault(f"kernel {name}: {text}")
