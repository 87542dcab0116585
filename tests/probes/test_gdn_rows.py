"""B18: the delta rule over many rows, where a decay vanishes, is one, or is tiny; zero keys."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from parity.protocol import EngineSettings
from parity_cpu.ops.delta_step import delta_step
from parity_cpu.ops.l2norm import l2norm
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.ops import Ops

KEY_HEADS, HEADS, KEY, VALUE = 2, 4, 32, 48
TINY = np.array([0x0008EC28], np.uint32).view(np.float32)[0]  # exp(-90), a subnormal
STEPS = (1, 32, 64, 65)
Array = np.ndarray[Any, np.dtype[Any]]


@cache
def ops() -> Ops:
    return Ops(EmuBackend(EngineSettings()))


def decays(name: str, steps: int) -> Array:
    """g of every step and head."""
    g = np.ones((steps, HEADS), np.float32)
    if name == "one vanishes":
        g[steps // 2] = TINY
    elif name == "all tiny":
        g[...] = np.float32(1e-12)
    return g


def run(step: Any, g: Array, start: Array) -> tuple[Array, Array]:
    """Outputs of all steps, and S after them."""
    rng = np.random.default_rng(3)
    state, outputs = start.copy(), []
    for row in g:
        q, k = rng.standard_normal((2, KEY_HEADS, KEY)).astype(np.float32) / np.float32(8)
        v = rng.standard_normal((HEADS, VALUE)).astype(np.float32)
        beta, o = rng.random(HEADS).astype(np.float32), np.full((HEADS, VALUE), np.nan, np.float32)
        step(o, state, q, k, v, beta, row)
        outputs.append(o)
    return np.stack(outputs), state


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", ["one vanishes", "all one", "all tiny"])
@pytest.mark.parametrize("start", [0.0, 1.0])
def test_extreme_decays_stay_finite_and_equal(name: str, steps: int, start: float) -> None:
    first = np.full((HEADS, KEY, VALUE), start, np.float32)
    ref, dut = (run(step, decays(name, steps), first) for step in (delta_step, ops().delta_step))
    for one, other in zip(ref, dut, strict=True):
        assert np.isfinite(one).all()
        assert one.tobytes() == other.tobytes()


def left_by(step: Any) -> set[int]:
    """Bits of S after one step from S = 1, with a zero key and a decay of exp(-90)."""
    state = np.ones((HEADS, KEY, VALUE), np.float32)
    zero, v = np.zeros((KEY_HEADS, KEY), np.float32), np.ones((HEADS, VALUE), np.float32)
    o = np.full((HEADS, VALUE), np.nan, np.float32)
    step(o, state, zero, zero, v, np.ones(HEADS, np.float32), np.full(HEADS, TINY, np.float32))
    assert not o.any()
    return set(state.reshape(-1).view(np.uint32).tolist())


def test_a_subnormal_decay_is_not_flushed() -> None:
    for step in (delta_step, ops().delta_step):
        assert left_by(step) == {0x0008EC28}


def flushing(o: Array, s: Array, *args: Any) -> None:
    """The step with subnormals of S flushed to zero, as a GPU may do."""
    delta_step(o, s, *args)
    s[np.abs(s) < np.finfo(np.float32).tiny] = 0


def dividing(o: Array, s: Array, *args: Any) -> None:
    """A factored step: the state is divided by its decay and multiplied again."""
    g = args[-1]
    with np.errstate(over="ignore", invalid="ignore"):
        s[...] = (s / g[:, None, None] / g[:, None, None]) * g[:, None, None]
    delta_step(o, s, *args)


def test_flushed_and_factored_decays_are_seen() -> None:
    assert left_by(flushing) == {0}
    first, g = np.ones((HEADS, KEY, VALUE), np.float32), decays("one vanishes", 32)
    plain, factored = run(delta_step, g, first), run(dividing, g, first)
    assert not np.isfinite(factored[0]).all()
    assert plain[0].tobytes() != factored[0].tobytes()


def test_norm_of_zero_and_of_a_short_key() -> None:
    """Zero gives zero; a key of norm 1e-4 gets length 0.0995: epsilon is inside the root (outside
    it, the length would be 1)."""
    keys = np.zeros((3, 2, KEY), np.float32)
    keys[1] = np.float32(1e-4 / np.sqrt(KEY))
    given = []
    for op, extra in ((l2norm, ()), (ops().l2norm, (2 * KEY,))):
        out = np.full(keys.shape, np.nan, np.float32)
        source = keys if op is l2norm else keys.reshape(-1)
        op(out, source, np.float32(1.0), *extra)
        given.append(out)
    assert given[0].tobytes() == given[1].tobytes()
    assert not given[0][[0, 2]].any()
    assert np.linalg.norm(given[0][1, 0].astype(np.float64)) == pytest.approx(0.0995, abs=1e-4)
