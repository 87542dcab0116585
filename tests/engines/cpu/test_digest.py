"""The CPU's hash of many bytes at once against the plain one, and its count of non-finite values.

The low bytes of 1024 bytes are found together, from planes of bits: lengths on both sides of every
border, starts of every low byte, and bytes that leave carries everywhere or nowhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from parity.fnv import BASES, fnv1a64, fnv1a64_array
from parity_cpu.code_cache import forget_changed
from parity_cpu.ops import digest as op
from parity_cpu.ops.digest import BLOCK, digest, serial_bytes
from tests.engines.cpu import compiled_code

BORDERS = sorted({max(0, times * BLOCK + by) for times in range(4) for by in (-65, -1, 0, 1, 63)})
on_x86 = pytest.mark.skipif(
    not compiled_code.host_has_fma() or sys.platform != "linux", reason="no x86 features to leave"
)
# What the child runs, on a processor without wide registers and carry-less products.
CHILD = """
from numba.core.registry import cpu_target
from tests.engines.cpu.test_digest import wrong
features = cpu_target.target_context.codegen().magic_tuple()[2]
assert "+avx512f" not in features and "+vpclmulqdq" not in features
print(wrong())
"""


def cases() -> Iterator[tuple[np.ndarray, int]]:
    """Bytes and a basis."""
    rng = np.random.default_rng(20_261_130)
    for length in BORDERS:
        for basis in (0, (1 << 64) - 1, *BASES.values()):
            yield rng.integers(0, 256, length, np.uint8), basis
    for length in rng.integers(0, 20_000, 40).tolist():
        yield rng.integers(0, 256, length, np.uint8), int(rng.integers(0, 1 << 63))
    for low in range(256):  # every start, with few bits to hide behind
        yield rng.integers(0, 2, BLOCK, np.uint8) << (low % 8), low
    for byte in (0, 1, 0x5A, 0x80, 0xB3, 0xFF):
        yield np.full(3 * BLOCK + 7, byte, np.uint8), BASES["fnv1a64"]


def wrong() -> int:
    """Cases in which the hash is not the plain one, of 300 or so."""
    return sum(
        digest(data, np.uint64(at), False)[0] != fnv1a64_array(data, at) for data, at in cases()
    )


@pytest.fixture
def read_anew() -> Iterator[None]:
    """Code made with a planted value goes with it."""
    yield
    forget_changed()


def test_every_digest_is_the_plain_one() -> None:
    assert len(list(cases())) > 300
    assert wrong() == 0


def test_the_plain_one_is_the_loop() -> None:
    """Byte by byte with Python's integers, and in compiled code, at any place in memory."""
    data = np.random.default_rng(3).integers(0, 256, 5 * BLOCK, np.uint8)
    for start in (0, 1, 7, 64):
        for basis in BASES.values():
            wanted = fnv1a64(data[start:].tobytes(), basis)
            assert digest(data[start:], np.uint64(basis), False)[0] == wanted
            assert serial_bytes(data[start:], np.uint64(basis)) == wanted


def test_red_a_wrong_power(read_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash before a block is moved on by 1023 bytes: all wrong but what has no whole block."""
    with monkeypatch.context() as patch:
        patch.setattr(op, "POWER_BLOCK", op._power(BLOCK - 1))
        assert forget_changed()
        short = sum(data.size < BLOCK or not at for data, at in cases())
        assert wrong() == len(list(cases())) - short
    forget_changed()
    assert wrong() == 0


@on_x86
def test_narrow_registers_give_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        env={**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+avx,+avx2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "0\n", done.stderr


@pytest.mark.parametrize("count", [1, 7, 255, 4096, 4099])
@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF])
def test_values_that_are_not_finite_are_counted(count: int, bits: int) -> None:
    """The largest finite value is none of them; the first index is the flat one."""
    values = np.full(count, 0xFF7FFFFF, np.uint32)
    data = values.view(np.uint8)
    assert digest(data, np.uint64(1), True)[1:] == (0, -1)
    values[[count // 2, count - 1]] = bits
    assert digest(data, np.uint64(1), True)[1:] == (1 + (count > 1), count // 2)
    assert digest(data, np.uint64(1), False)[1:] == (0, -1)
