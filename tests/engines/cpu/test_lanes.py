"""Rows in lanes: a row's bits hang on nothing but the row, on any processor; the code is packed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba.core.errors import TypingError

from parity.variants import variant_mask
from parity_cpu.ops import delta_step, expert_matvec, f32_matvec, q4_matvec
from parity_cpu.ops.attention_f32 import attention_f32
from tests.engines.cpu import compiled_code

F = np.float32
EXACT, FAST = 0, 0xFFF  # masks: of no variant, of all that a product knows but zero_point
MASKS = (EXACT, FAST, FAST | variant_mask(["zero_point"]))
ROWS = (1, 2, 15, 16, 17, 31, 33, 48)
COLUMNS = (32, 96, 224, 256, 288, 544)  # blocks below, at and past the eight whose scales are read
on_x86 = pytest.mark.skipif(
    not compiled_code.host_has_fma() or sys.platform != "linux", reason="no x86 features to leave"
)
# What the child runs: every product on a processor without wide registers, as hex digits.
CHILD = """
import sys
from numba.core.registry import cpu_target
from tests.engines.cpu.test_lanes import everything
assert "+avx512f" not in cpu_target.target_context.codegen().magic_tuple()[2]
sys.stdout.write(everything(int(sys.argv[1])).hex())
"""

Array = np.ndarray[Any, np.dtype[Any]]


def q4(rows: int, columns: int, seed: int = 1) -> tuple[Array, Array, Array]:
    """d, qs and x (2, columns); scales subnormal and negative among others."""
    rng = np.random.default_rng((seed, rows, columns))
    d = rng.normal(size=(rows, columns // 32)).astype(np.float16)
    d[rng.random(d.shape) < 0.1] *= np.float16(1e-5)
    qs = rng.integers(0, 256, (rows, columns // 2), dtype=np.uint8)
    return d.view(np.uint16), qs, rng.normal(size=(2, columns)).astype(F)


def by_q4(rows: slice, given: tuple[Array, Array, Array], mask: int) -> Array:
    d, qs, x = given
    d, qs = np.ascontiguousarray(d[rows]), np.ascontiguousarray(qs[rows])
    out = np.full((len(x), len(d)), np.nan, F)
    q4_matvec.q4_matvec(out, d, qs, x, mask)
    return out


def by_experts(rows: slice, given: tuple[Array, Array, Array], mask: int) -> Array:
    d, qs, x = given
    d, qs = np.ascontiguousarray(d[None, rows]), np.ascontiguousarray(qs[None, rows])
    q = np.rint(x * 9000).clip(-32767, 32767).astype(np.int16)
    scales = np.linspace(0.1, 2, q.size // 32, dtype=F).reshape(2, 1, -1)
    out = np.full((2, 1, d.shape[1]), np.nan, F)
    ids, probs = np.zeros((2, 1), np.int32), np.full((2, 1), F(0.3))
    expert_matvec.expert_matvec(out, d, qs, ids, probs, q[:, None], scales, mask)
    return out[:, 0]


def by_floats(rows: slice, given: tuple[Array, Array, Array], mask: int) -> Array:
    d, _, x = given
    w = np.sin(np.arange(len(d) * (x.shape[1] - 1), dtype=F)).reshape(len(d), -1)[rows]
    out = np.full((2, len(w)), np.nan, F)
    f32_matvec.f32_matvec(out, np.ascontiguousarray(w), np.ascontiguousarray(x[:, 1:]), mask)
    return out


PRODUCTS: tuple[Callable[..., Array], ...] = (by_q4, by_experts, by_floats)


def everything(seed: int) -> bytes:
    """What all products give for some sizes, exact and with variants."""
    return b"".join(
        product(slice(None), q4(rows, columns, seed), mask).tobytes()
        for product in PRODUCTS
        for rows, columns in ((3, 96), (33, 288))
        for mask in MASKS
    )


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.__name__)
@pytest.mark.parametrize("columns", COLUMNS)
def test_a_row_has_the_bits_it_has_alone(product: Callable[..., Array], columns: int) -> None:
    for rows in ROWS:
        given = q4(rows, columns)
        for mask in MASKS:
            together = product(slice(None), given, mask)
            for row in {0, rows // 2, rows - 1}:
                alone = product(slice(row, row + 1), given, mask)
                assert alone.tobytes() == together[:, row].tobytes(), (rows, row, mask)


def in_child(seed: int, **settings: str) -> bytes:
    """``everything`` in a process that Numba compiles for another processor."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(seed)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return bytes.fromhex(done.stdout)


@on_x86
def test_narrow_registers_give_the_bits_of_wide_ones() -> None:
    narrow = in_child(1, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="+fma,+avx,+avx2")
    assert len(narrow) == len(PRODUCTS) * (3 + 33) * 2 * len(MASKS) * 4
    assert narrow == everything(1)
    assert narrow != everything(2)  # red: another model's bits


@pytest.mark.parametrize("op", [q4_matvec.q4_matvec, f32_matvec.f32_matvec])
def test_red_rows_that_are_not_contiguous_are_refused(op: Any) -> None:
    d, qs, x = q4(4, 64)
    w = (
        (np.zeros((4, 128), F)[:, ::2],)
        if op is f32_matvec.f32_matvec
        else (d, qs[::2].repeat(2, 0).T)
    )
    with pytest.raises(TypingError, match="C-contiguous arrays alone"):
        op(np.zeros((2, 4), F), *w, x, EXACT)


def test_red_keys_that_are_not_contiguous_are_refused() -> None:
    rows = np.zeros((4, 1, 16), F)[..., ::2]
    with pytest.raises(TypingError, match="C-contiguous arrays alone"):
        attention_f32(np.zeros((1, 1, 8), F), np.zeros((1, 1, 8), F), rows, rows, F(1), 0, EXACT)


# --- packed code ----------------------------------------------------------------------------------


def products(function: Any) -> tuple[int, int]:
    """(packed, scalar) float32 products in the machine code of a function and all it calls."""
    text = "\n".join(compiled_code._fresh(function).inspect_asm().values())
    return len(re.findall(r"\bv?mulps\b", text)), len(re.findall(r"\bv?mulss\b", text))


@on_x86
def test_the_products_are_packed() -> None:
    everything(1)
    step = [np.ones((2, 64), F) for _ in range(3)]
    gates = np.ones((2, 2), F)
    delta_step.delta_step(step[0], np.ones((2, 64, 64), F), *step[1:], step[0], *gates)
    for op in (q4_matvec.q4_matvec, expert_matvec.expert_matvec, f32_matvec.f32_matvec):
        compiled_code._fresh(op)  # code from the cache does not say what it calls
    compiled_code._fresh(delta_step.delta_step)
    for function in (q4_matvec.tile_exact, expert_matvec.tile_int, f32_matvec.tile_f32):
        packed, scalar = products(function)
        assert packed > 0, function
        assert scalar == 0, function
    assert products(delta_step.head_step)[0] > 0


@on_x86
def test_red_a_serial_chain_is_not_packed() -> None:
    from parity_cpu.ops.headnorm import squares_ascending

    squares_ascending(np.ones(64, F))
    packed, scalar = products(squares_ascending)
    assert packed == 0
    assert scalar > 0
