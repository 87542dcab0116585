"""Copies of a launch's arrays that end where the address sanitizer sees an end.

NumPy hands out views into larger buffers: an index past the end of a view may still lie inside
the buffer, where no sanitizer finds it. Here every array gets memory of its own for the launch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# Loads of up to 16 bytes must stay as aligned, or as misaligned, as they were.
_ALIGNMENT = 16


@dataclass
class _Span:
    """Bytes ``start`` to ``end`` that one or more arrays cover, and their copy in ``memory``."""

    start: int
    end: int
    writeable: bool
    memory: int = 0

    def shifted(self) -> int:
        return self.memory + self.start % _ALIGNMENT


@contextmanager
def guarded(args: Sequence[Array | np.generic]) -> Iterator[list[Array | np.generic]]:
    """Give the arguments with each array copied; what was written is copied back at the end.

    Arrays that overlap share one copy, so that they still do.
    """
    libc = ctypes.CDLL(None)
    libc.malloc.argtypes, libc.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
    libc.free.argtypes, libc.free.restype = (ctypes.c_void_p,), None
    spans = _spans([arg for arg in args if isinstance(arg, np.ndarray)])
    for span in spans:
        span.memory = libc.malloc(span.start % _ALIGNMENT + span.end - span.start)
        ctypes.memmove(span.shifted(), span.start, span.end - span.start)
    try:
        yield [_copied(arg, spans) if isinstance(arg, np.ndarray) else arg for arg in args]
    finally:
        for span in spans:
            if span.writeable:
                ctypes.memmove(span.start, span.shifted(), span.end - span.start)
            libc.free(span.memory)


def _extent(array: Array) -> tuple[int, int]:
    start = int(array.__array_interface__["data"][0])
    return start, start + array.nbytes


def _spans(arrays: Sequence[Array]) -> list[_Span]:
    spans: list[_Span] = []
    for array in sorted(arrays, key=_extent):
        start, end = _extent(array)
        if spans and start < spans[-1].end:
            spans[-1].end = max(spans[-1].end, end)
            spans[-1].writeable |= array.flags.writeable
        else:
            spans.append(_Span(start, end, array.flags.writeable))
    return spans


def _copied(array: Array, spans: Sequence[_Span]) -> Array:
    start, end = _extent(array)
    span = next(each for each in spans if each.start <= start and end <= each.end)
    at = span.shifted() + start - span.start
    memory: Any = (ctypes.c_char * array.nbytes).from_address(at)
    copy: Array = np.ndarray(array.shape, array.dtype, buffer=memory)
    copy.flags.writeable = array.flags.writeable
    return copy
