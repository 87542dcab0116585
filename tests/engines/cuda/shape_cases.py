"""Cases at every border of the kernels' tiles, windows and warps, answered by the Numba twin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.engines.cuda.twin_cases import SEED, Runner, numba_run
from tests.oracle import check

F = np.float32
Array = np.ndarray[Any, np.dtype[Any]]
Named = tuple[str, str, tuple[check.Spec, ...], check.Args]  # op, label, outputs, inputs


def wide(rng: np.random.Generator, *shape: int) -> Array:
    """Values of both signs over some binades, so that an order of addition shows."""
    return np.ldexp(rng.standard_normal(shape), rng.integers(-6, 7, shape)).astype(F)


def halves(rng: np.random.Generator, *shape: int) -> Array:
    """Scales of both signs, as bits of f16."""
    return rng.normal(0, 0.02, shape).astype(np.float16).view(np.uint16)


def q4(rows: int, nb: int, count: int, far: bool = False) -> Named:
    """A Q4_0 projection. ``far``: some inputs are too large or too small to be scaled."""
    rng = np.random.default_rng((SEED, rows, nb, count))
    qs = rng.integers(0, 256, (rows, nb * 16), np.uint8)
    x = wide(rng, count, nb * 32)
    if far:
        x[:, ::3] = np.ldexp(x[:, ::3], rng.integers(-130, 60, x[:, ::3].shape))
    label = f"{rows} x {nb} blocks, {count} rows{', far' if far else ''}"
    return "q4_matvec", label, (((count, rows), F),), (halves(rng, rows, nb), qs, x)


def f32(rows: int, cols: int, count: int) -> Named:
    """An f32 projection."""
    rng = np.random.default_rng((SEED, rows, cols, count))
    args = (wide(rng, rows, cols), wide(rng, count, cols))
    return "f32_matvec", f"{rows} x {cols}, {count} rows", (((count, rows), F),), args


def experts(rows: int, nb: int, count: int, groups: int, ranks: int = 3, total: int = 7) -> Named:
    """Chosen Q4_0 experts."""
    rng = np.random.default_rng((SEED, rows, nb, count, groups))
    qs = rng.integers(0, 256, (total, rows, nb * 16), np.uint8)
    ids = np.stack([rng.permutation(total)[:ranks] for _ in range(count)]).astype(np.int32)
    q = rng.integers(-32767, 32768, (count, groups, nb * 32), np.int16)
    args = (halves(rng, total, rows, nb), qs, ids, q, rng.random((count, groups, nb), F))
    label = f"{rows} x {nb} blocks, {count} rows, {groups} inputs"
    return "expert_matvec", label, (((count, ranks, rows), F),), args


def attention(heads: tuple[int, int, int], keys: int, count: int, int8: bool) -> Named:
    """``count`` rows, the last of which sees ``keys`` keys. Scores rise and fall, so that maxima
    move late too."""
    n_q, n_kv, hd = heads
    rng = np.random.default_rng((SEED, *heads, keys, count))
    spec = (((count, n_q, hd), F),)
    label = f"{n_q}/{n_kv} x {hd}, {count} rows, {keys} keys"
    last = (F(hd**-0.5), keys - count)
    if not int8:
        cached = (wide(rng, keys, n_kv, hd), wide(rng, keys, n_kv, hd))
        return (
            "attention_f32",
            label,
            spec,
            (rng.standard_normal(spec[0][0]).astype(F), *cached, *last),
        )
    q = rng.integers(-127, 128, (count, n_q, hd), np.int8)
    k, v = (rng.integers(-127, 128, (keys, n_kv, hd), np.int8) for _ in range(2))
    scales = [rng.random((keys, n_kv), F) * F(0.03) for _ in range(2)]
    args = (q, rng.random((count, n_q), F) * F(0.03), k, scales[0], v, scales[1], *last)
    return "attention_int8", label, spec, args


def unseen(heads: tuple[int, int, int], keys: int, count: int) -> Named:
    """The same with an infinite value that the last row alone sees: of one row, the block's end."""
    op, label, spec, args = attention(heads, keys, count, int8=False)
    values = args[2]
    assert isinstance(values, np.ndarray)
    values[-1, :, 0] = np.inf
    return op, f"{label}, the last infinite", spec, args


def scored(scores: Array, int8: bool) -> Named:
    """Attention of two rows over keys with these scores, times a constant."""
    keys = len(scores)
    op, label, spec, args = attention((2, 1, 32), keys, 2, int8)
    given = list(args)
    given[0] = np.ones_like(given[0])
    k = np.ones_like(given[2 if int8 else 1])
    if int8:
        given[2], given[3] = k, scores[:, None].astype(F)
    else:
        given[1] = k * scores[:, None, None].astype(F)
    return op, f"{label}, scores {scores[0]:g} to {scores[-1]:g}", spec, tuple(given)


def vanishing() -> Named:
    """Two keys: a correction and a scale of 0 leave sums of -0.0."""
    op, label, spec, args = attention((1, 1, 32), 2, 1, int8=True)
    ones = np.ones((2, 1, 32), np.int8)
    scales = [np.array([pair], F).T for pair in ((-10, 10), (1e-30, 0))]
    given = (ones[:1], np.ones((1, 1), F), ones, scales[0], -ones, scales[1], *args[6:])
    return op, f"{label}, sums of -0", spec, given


def odd_scores() -> Iterator[Array]:
    """Of 140 keys: maxima that move at every key or never; then one that is not finite."""
    yield from (np.linspace(0.01, 3, 140), np.linspace(3, 0.01, 140), np.full(140, 0.5))
    for at, value in ((0, np.nan), (40, np.nan), (0, np.inf), (100, np.inf), (129, -np.inf)):
        scores = np.linspace(-1, 1, 140)
        scores[at] = value
        yield scores


def router(experts_: int, ranks: int, count: int) -> Named:
    """Logits with ties."""
    rng = np.random.default_rng((SEED, experts_, ranks, count))
    logits = rng.integers(-6, 6, (count, experts_)).astype(F)
    specs = (((count, ranks), np.int32), ((count, ranks), F))
    return "router_topk", f"{ranks} of {experts_}, {count} rows", specs, (logits, ranks, True)


def delta(key_heads: int, heads: int, key_width: int, width: int) -> Named:
    """One step of the delta rule."""
    rng = np.random.default_rng((SEED, heads, key_width, width))
    q, k = (wide(rng, key_heads, key_width) for _ in range(2))
    s, v = wide(rng, heads, key_width, width), wide(rng, heads, width)
    args = (s, q, k, v, rng.random(heads, F), rng.random(heads, F))
    return "delta_step", f"{heads} of {key_width} x {width}", ((v.shape, F),), args


def norm(op: str, *shape: int) -> Named:
    """rmsnorm of rows, headnorm of heads."""
    rng = np.random.default_rng((SEED, *shape))
    args = (wide(rng, *shape), wide(rng, shape[-1]), F(1e-6))
    return op, " x ".join(map(str, shape)), ((shape, F),), args


def quant8(*shape: int) -> Named:
    """int8 heads."""
    rng = np.random.default_rng((SEED, *shape))
    specs = ((shape, np.int8), (shape[:2], F))
    return "quant8", " x ".join(map(str, shape)), specs, (wide(rng, *shape),)


def small() -> Iterator[Named]:
    """Small enough for the emulator: each tail, and one past each border."""
    for rows, nb, count in (
        (1, 1, 1), (3, 5, 1), (7, 3, 2), (9, 24, 1), (33, 31, 1), (40, 33, 1), (35, 65, 2),
        (2, 161, 1), (5, 163, 1), (12, 320, 1), (6, 129, 3), (13, 34, 4), (19, 7, 5), (33, 32, 6),
        (34, 37, 7), (41, 40, 8), (6, 66, 9), (5, 3, 33), (300, 9, 1), (1500, 2, 1), (601, 1, 8),
    ):  # fmt: skip
        yield q4(rows, nb, count)
    yield from (q4(9, 5, count, far=True) for count in (1, 2, 3, 8))
    for rows, cols, count in (
        (1, 1, 1), (3, 15, 1), (5, 16, 2), (2, 33, 3), (31, 64, 1), (33, 65, 4), (7, 513, 1),
        (3, 2050, 1), (2, 2052, 8), (40, 100, 9), (3, 67, 33), (1100, 20, 1),
    ):  # fmt: skip
        yield f32(rows, cols, count)
    for rows, nb, count, groups in (
        (1, 1, 1, 1), (5, 3, 2, 3), (33, 7, 1, 1), (70, 33, 1, 3), (130, 24, 1, 3), (4, 131, 1, 1),
        (5, 3, 3, 1), (7, 2, 4, 3), (9, 5, 8, 1), (3, 4, 13, 3),
    ):  # fmt: skip
        yield experts(rows, nb, count, groups)
    for int8 in (True, False):
        for heads in ((4, 2, 96), (2, 1, 32), (3, 3, 36), (2, 2, 5)):
            for keys, count in ((1, 1), (2, 2), (31, 1), (33, 3), (127, 1), (130, 4)):
                yield attention(heads, keys, count, int8)
        yield from (attention((2, 1, 40), 128, 1, int8), attention((2, 1, 40), 129, 1, int8))
        yield from (attention((2, 1, 32), 1003, 2, int8), attention((1, 1, 40), 901, 1, int8))
        yield from (scored(scores, int8) for scores in odd_scores())
    yield from (unseen((2, 1, 36), 35, 3), unseen((1, 1, 32), 130, 2), unseen((1, 1, 32), 130, 1))
    yield from (vanishing(), attention((1, 1, 8), 140, 7, int8=False))
    for experts_, ranks, count in ((1, 1, 1), (3, 3, 2), (31, 5, 1), (33, 8, 3), (130, 8, 1)):
        yield router(experts_, ranks, count)
    yield from (delta(1, 2, 7, 17), delta(2, 2, 9, 15), delta(1, 1, 128, 16), delta(1, 3, 8, 33))
    yield from (norm("rmsnorm", 2, 7), norm("rmsnorm", 1, 2051), norm("rmsnorm", 3, 264))
    yield from (norm("headnorm", 2, 3, 33), norm("headnorm", 1, 2, 256))
    yield from (quant8(2, 3, 31), quant8(1, 2, 129))


def real() -> Iterator[Named]:
    """The shapes of two models."""
    for count in (1, 2, 3, 4, 5, 8, 9):
        yield from (q4(5120, 64, count), q4(2048, 128, count), q4(700, 544, count))
    yield from (q4(5000, 160, 1), q4(40_000, 64, 1), q4(512, 64, 33))
    for count in (1, 2, 8, 9):
        yield from (f32(128, 2048, count), f32(48, 5120, count))
    yield from (experts(768, 64, 2, 1, 8, 16), experts(2048, 24, 2, 8, 8, 16))
    for keys in (1, 127, 128, 129, 1000, 1024, 4097):
        yield attention((32, 4, 128), keys, 1, int8=True)
    yield from (attention((32, 4, 128), 1024, m, int8=True) for m in (2, 4, 8))
    for keys, count in ((1, 1), (1000, 1), (1024, 8), (2049, 1)):
        yield attention((24, 4, 256), keys, count, int8=False)
    yield from (delta(16, 48, 128, 128), router(128, 8, 4))
    yield from (norm("rmsnorm", 2, 2048), norm("rmsnorm", 1, 5120), norm("headnorm", 2, 32, 128))
    yield from (norm("headnorm", 1, 24, 256), quant8(2, 32, 128))


def check_shape(case: Named, run: Runner, mask: int = 0, nan: int | None = None) -> None:
    """Raise OpMismatch where a backend has other bytes than the twin. ``mask``: the variants.

    ``nan``: the bits of the one NaN that the backend's arithmetic returns, where it is not the
    CPU's, which keeps payloads (contract 1.10); a NaN of the twin's outputs must be that one.
    """
    op, label, specs, args = case

    def twin(*given: Any) -> Any:
        return numba_run(*given, mask)

    pairs = zip(_arrays(op, args, specs, twin), _arrays(op, args, specs, run), strict=True)
    for at, (one, other) in enumerate(pairs):
        if nan is not None and at < len(specs) and one.dtype == F:
            one.view(np.uint32)[np.isnan(one)] = nan
        if (one.dtype, one.shape, one.tobytes()) != (other.dtype, other.shape, other.tobytes()):
            wrong = int(check.differing(one, other, any_nan=False).sum())
            raise check.OpMismatch(f"{op}[{label}]: {wrong} of {one.size} in array {at}")


def _arrays(op: str, args: check.Args, specs: tuple[check.Spec, ...], run: Runner) -> list[Array]:
    """Outputs, then the inputs as they are after the run."""
    given = tuple(each.copy() if isinstance(each, np.ndarray) else each for each in args)
    return [*run(op, given, specs), *(each for each in given if isinstance(each, np.ndarray))]
