"""Tiles that are not full read nothing past a matrix, which ends where a closed page begins."""

from __future__ import annotations

import ctypes
import mmap
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from parity_cpu.ops.expert_matvec import expert_matvec
from parity_cpu.ops.f32_matvec import f32_matvec
from parity_cpu.ops.q4_matvec import q4_matvec
from tests.engines.cpu.test_lanes import MASKS, ROWS, F, q4

COLUMNS = (32, 288)  # one block; nine, whose scales are read eight at a time and alone
CHILD = "from tests.engines.cpu import test_lanes_border as border; border.{}()"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mprotect as on Linux")

Array = np.ndarray[Any, np.dtype[Any]]


def guarded(array: Array) -> Array:
    """A copy whose last byte is the last one of a page; the page after it is closed."""
    pages = -(-array.nbytes // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    end = pages * mmap.PAGESIZE
    whole = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    closed = ctypes.c_void_p(whole.ctypes.data + end)
    if libc.mprotect(closed, ctypes.c_size_t(mmap.PAGESIZE), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    found = whole[end - array.nbytes : end].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def run(place: Any) -> list[bytes]:
    """What each product gives; ``place`` puts a matrix where it is read."""
    found = []
    for rows in ROWS:
        for columns in COLUMNS:
            d, qs, x = q4(rows, columns)
            w = np.sin(np.arange(rows * columns, dtype=F)).reshape(rows, columns)
            held, packed, floats = place(d), place(qs), place(w)
            q = np.rint(x * 9000).clip(-32767, 32767).astype(np.int16)[:, None]
            ids, ones = np.zeros((2, 1), np.int32), np.ones((2, 1), F)
            scales = np.ones((2, 1, columns // 32), F)
            for mask in MASKS:
                out = np.zeros((2, rows), F)
                q4_matvec(out, held, packed, x, mask)
                found.append(out.tobytes())
                f32_matvec(out, floats, x, mask)
                found.append(out.tobytes())
                chosen = np.zeros((2, 1, rows), F)
                expert_matvec(chosen, held[None], packed[None], ids, ones, q, scales, mask)
                found.append(chosen.tobytes())
    return found


def inside() -> None:
    """Run by a child: the products over guarded matrices, with the bits of plain ones."""
    assert run(guarded) == run(np.copy)


def past() -> None:
    """Run by a child: one byte past a guarded matrix."""
    matrix = guarded(np.zeros(64, np.uint8))
    ctypes.string_at(matrix.ctypes.data + 64, 1)


def status(name: str) -> int:
    """How a child ends; a signal as its negative number."""
    return subprocess.run([sys.executable, "-c", CHILD.format(name)], check=False).returncode


def test_nothing_past_a_matrix_is_read() -> None:
    assert status("inside") == 0


def test_red_one_byte_past_it_ends_the_child() -> None:
    assert status("past") == -signal.SIGSEGV
