"""Which elementary functions an op calls, with which arguments, and what it makes of the values.

Every op that calls some is written here around its calls. Chains of additions are the op's own
functions; what stands between is one float32 operation an array, rounded once. So the arguments,
and the outputs made of the values, have the op's bits, and the values may be another engine's.

l2norm is not here: its root is 3.2's own and no variant swaps it. decay_rates runs at load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.protocol import Call, Elementary
from parity_cpu.jit import jit
from parity_cpu.ops.attention_f32 import scores_f32, weigh_f32
from parity_cpu.ops.attention_int8 import scores_int8, weigh_int8
from parity_cpu.ops.attention_parts import parts_total
from parity_cpu.ops.headnorm import squares_ascending
from parity_cpu.ops.norm_tree import squares_by_tree
from parity_cpu.ops.rmsnorm import squares_by_blocks
from parity_cpu.ops.router_topk import choose, largest
from parity_cpu.ops.tree import power_of_two, tree_sum
from parity_cpu.own_functions import own_values
from parity_cpu.variants import SPLIT_KEYS, TWO_PASS

Array = Any
Floats = np.ndarray
# ask(function, x, where): values of x, and a note of the call; where ``where`` is False there is
# none. Returns x's shape.
Ask = Callable[..., Floats]
# The op's outputs, worked out when they are wanted.
Outputs = Callable[[], tuple[Array, ...]]
# part(ask, *arguments of the op)
Part = Callable[..., Outputs]

F = np.float32
ZERO, ONE, LINEAR = F(0.0), F(1.0), F(20.0)


@dataclass(frozen=True)
class Ran:
    """An op that ran. ``parts``: by field that it makes, or "" for all, its elementary calls."""

    op: str
    parts: Mapping[str, tuple[tuple[str, Floats], ...]]

    def call(self, field: str) -> Call:
        """What it did for ``field``."""
        told = self.parts.get(field, self.parts.get("", ()))
        return Call(self.op, told, f"parity_cpu/ops/{self.op}.py")


def watch(op: str, args: Sequence[Any], borrow: Elementary | None) -> Ran:
    """What ``op(*args)`` is going to call; asked before it runs, for some overwrite their state."""
    told = {}
    with np.errstate(all="ignore"):
        for field, part in PARTS.get(op, {}).items():
            calls = _Calls(borrow, args[-1])
            part(calls, *args)
            told[field] = calls.told()
    return Ran(op, told)


def redo(op: str, args: Sequence[Any], borrow: Elementary) -> bool:
    """Run ``op(*args)`` with the functions of ``borrow``; False where it calls none."""
    if op not in PARTS:
        return False
    calls = _Calls(borrow, args[-1])
    with np.errstate(all="ignore"):
        outputs = [part(calls, *args)() for part in PARTS[op].values()]
    made = [array for arrays in outputs for array in arrays]
    for target, array in zip(args, made, strict=False):
        target[...] = array
    return True


class _Calls:
    """Answers calls by the borrowed functions, or by those of the op's variants, and notes them."""

    def __init__(self, borrow: Elementary | None, variants: int) -> None:
        self._values = borrow or (lambda function, x: own_values(function, x, variants))
        self._made: dict[str, list[tuple[Floats, Floats]]] = {}

    def __call__(self, function: str, x: Floats, where: Floats | None = None) -> Floats:
        called = np.ones(x.shape, np.bool_) if where is None else where
        self._made.setdefault(function, []).append((x, called))
        return self._values(function, np.ascontiguousarray(x).reshape(-1)).reshape(x.shape)

    def told(self) -> tuple[tuple[str, Floats], ...]:
        """By function, all arguments in the op's order: element by element, call by call."""
        called = ((name, _interleaved(made)) for name, made in self._made.items())
        return tuple((name, x) for name, x in called if x.size)


def _interleaved(made: list[tuple[Floats, Floats]]) -> Floats:
    x = np.stack([x for x, _ in made], axis=-1)
    return x[np.stack([called for _, called in made], axis=-1)]


# --- norms: contract 1.1, 1.2, 5 ------------------------------------------------------------------


def _rmsnorm(ask: Ask, out: Array, x: Array, w: Array, eps: Array, variants: int) -> Outputs:
    return _norm(ask, squares_by_blocks, x, w, eps)


def _headnorm(ask: Ask, out: Array, x: Array, w: Array, eps: Array, variants: int) -> Outputs:
    return _norm(ask, squares_ascending, x, w, eps)


def _norm_tree(ask: Ask, out: Array, x: Array, w: Array, eps: Array, variants: int) -> Outputs:
    part = np.empty(power_of_two(x.shape[-1]), F)
    return _norm(ask, lambda row: squares_by_tree(row, part), x, w, eps)


def _norm(ask: Ask, squares: Callable[[Array], Array], x: Array, w: Array, eps: Array) -> Outputs:
    """1 / sqrt(ss / d + eps), the reciprocal square root, once a row; then (x * r) * w."""
    rows = x.reshape(-1, x.shape[-1])
    sums = np.array([squares(row) for row in rows], F)
    r = ask("rsqrt", sums / F(x.shape[-1]) + eps)
    return lambda: ((rows * r[:, None] * w).reshape(x.shape),)


# --- RoPE: contract 1.7 ---------------------------------------------------------------------------


def _rope(ask: Ask, out: Array, x: Array, inv_freq: Array, pos: int, variants: int) -> Outputs:
    """Cosine and sine of every angle of a row, once for all its heads."""
    half = inv_freq.shape[0]
    angles = np.arange(pos, pos + x.shape[0]).astype(F)[:, None] * inv_freq
    c, s = (ask(function, angles)[:, None] for function in ("cosf", "sinf"))

    def outputs() -> tuple[Array, ...]:
        turned, x1, x2 = x.copy(), x[..., :half], x[..., half : 2 * half]
        turned[..., :half] = x1 * c - x2 * s
        turned[..., half : 2 * half] = x2 * c + x1 * s
        return (turned,)

    return outputs


# --- attention: contract 1.8 ----------------------------------------------------------------------


def _attention_int8(
    ask: Ask,
    out: Array,
    q: Array,
    q_scale: Array,
    k: Array,
    k_scale: Array,
    v: Array,
    v_scale: Array,
    sm_scale: Array,
    pos: int,
    variants: int,
) -> Outputs:
    def score(s: Array, m: int, h: int, g: int) -> None:
        scores_int8(s, q[m, h], q_scale[m, h], k, k_scale, sm_scale, g)

    def weigh(row: Array, p: Array, c: Array, total: Array, g: int) -> None:
        weigh_int8(row, p, c, total, v, v_scale, g, variants)

    return _attention(ask, out.shape, k.shape[1], pos, variants, score, weigh)


def _attention_f32(
    ask: Ask,
    out: Array,
    q: Array,
    k: Array,
    v: Array,
    sm_scale: Array,
    pos: int,
    variants: int,
) -> Outputs:
    def score(s: Array, m: int, h: int, g: int) -> None:
        scores_f32(s, q[m, h], k, sm_scale, g)

    def weigh(row: Array, p: Array, c: Array, total: Array, g: int) -> None:
        weigh_f32(row, p, c, total, v, g, variants)

    return _attention(ask, out.shape, k.shape[1], pos, variants, score, weigh)


def _attention(
    ask: Ask,
    shape: tuple[int, int, int],
    n_kv: int,
    pos: int,
    variants: int,
    score: Callable[..., None],
    weigh: Callable[..., None],
) -> Outputs:
    """Correction and weight of every key but the first, keys ascending, head by head."""
    jobs = [(m, h, h // (shape[1] // n_kv)) for m, h in np.ndindex(shape[:2])]
    known = variants & (TWO_PASS | SPLIT_KEYS)
    given = []
    for m, h, g in jobs:
        s = np.empty(pos + m + 1, F)
        score(s, m, h, g)
        given.append(s - largest(s) if known else online_arguments(s))
    values = ask("expf", np.concatenate(given))

    def outputs() -> tuple[Array, ...]:
        out, at = np.empty(shape, F), 0
        for (m, h, g), asked in zip(jobs, given, strict=True):
            mine, at = values[at : at + asked.size], at + asked.size
            weigh(out[m, h], *(_known(mine, variants) if known else _online(mine)), g)
        return (out,)

    return outputs


@jit
def online_arguments(s):  # type: ignore[no-untyped-def]
    """m - m' and s_t - m' of every key t > 0 of the scores s: (keys,) f32 (contract 1.8)."""
    given = np.empty(2 * (s.shape[0] - 1), np.float32)
    best = s[0]
    for t in range(1, s.shape[0]):
        top = s[t] if s[t] > best else best
        given[2 * t - 2] = best - top
        given[2 * t - 1] = s[t] - top
        best = top
    return given


def _online(values: Floats) -> tuple[Floats, Floats, np.float32]:
    """p, c and l of the values; those of the first key by definition."""
    c = np.concatenate([[ZERO], values[::2]])
    p = np.concatenate([[ONE], values[1::2]])
    return p, c, F(running_sum(p, c))  # Numba boxes a float32 as a Python float


def _known(values: Floats, variants: int) -> tuple[Floats, Floats, np.float32]:
    """The same of contract 5's two_pass and split_keys: no correction, l by tree or by parts."""
    if variants & SPLIT_KEYS:
        return values, np.ones_like(values), F(parts_total(values))
    part = np.zeros(power_of_two(values.size), F)
    part[: values.size] = values
    return values, np.ones_like(values), F(tree_sum(part))


@jit
def running_sum(p, c):  # type: ignore[no-untyped-def]
    """l = l * c + p, ascending. p, c: (n,) f32."""
    total = np.float32(0.0)
    for t in range(p.shape[0]):
        total = np.float32(np.float32(total * c[t]) + p[t])
    return total


# --- the router: contract 2 -----------------------------------------------------------------------


def _router_topk(
    ask: Ask, ids: Array, probs: Array, logits: Array, norm: bool, variants: int
) -> Outputs:
    tops = np.array([largest(row) for row in logits], F)
    soft = ask("expf", logits - tops[:, None])

    def outputs() -> tuple[Array, ...]:
        made = np.empty_like(ids), np.empty_like(probs)
        for m, row in enumerate(soft):
            total = F(running_sum(row, np.ones_like(row)))  # boxed as a Python float
            choose(made[0][m], made[1][m], row.copy(), total, norm)
        return made

    return outputs


# --- activations and gates: contract 1.9, 2, 3.1, 3.2 ---------------------------------------------


def _sigmoid(ask: Ask, x: Floats) -> Floats:
    values: Floats = ONE / (ONE + ask("expf", -x))
    return values


def _shared_gate(ask: Ask, out: Array, x: Array, variants: int) -> Outputs:
    weight = _sigmoid(ask, x)
    return lambda: (weight,)


def _swiglu(ask: Ask, out: Array, gate: Array, up: Array, variants: int) -> Outputs:
    weight = _sigmoid(ask, gate)
    return lambda: (gate * weight * up,)


def _sigmoid_gate(ask: Ask, out: Array, x: Array, gate: Array, variants: int) -> Outputs:
    weight = _sigmoid(ask, gate)
    return lambda: (x * weight,)


def _silu_gate(ask: Ask, out: Array, x: Array, z: Array, variants: int) -> Outputs:
    weight = _sigmoid(ask, z)
    return lambda: (x * (z * weight),)


def _convolved(ask: Ask, out: Array, hist: Array, qkv: Array, w: Array, variants: int) -> Outputs:
    taps, acc = (*hist, qkv), np.zeros_like(qkv)
    for t, row in enumerate(taps):
        acc = acc + w[:, t] * row
    weight = _sigmoid(ask, acc)
    return lambda: (acc * weight,)


def _shifted(ask: Ask, out: Array, hist: Array, qkv: Array, w: Array, variants: int) -> Outputs:
    return lambda: (np.concatenate([hist[1:], qkv[None]]),)


def _beta(
    ask: Ask, beta: Array, g: Array, a: Array, b: Array, rates: Array, bias: Array, variants: int
) -> Outputs:
    weight = _sigmoid(ask, b)
    return lambda: (weight,)


def _decay(
    ask: Ask, beta: Array, g: Array, a: Array, b: Array, rates: Array, bias: Array, variants: int
) -> Outputs:
    """expf(nA * softplus(a + dt_bias)); softplus calls nothing above 20."""
    x = a + bias
    curved = ~(x > LINEAR)
    soft = np.where(curved, ask("logf", ONE + ask("expf", x, curved), curved), x)
    values = ask("expf", rates * soft)
    return lambda: (values,)


# Op to its parts: field that a part makes ("" for all of the op's), in the order of the outputs.
PARTS: Mapping[str, Mapping[str, Part]] = {
    "rmsnorm": {"": _rmsnorm},
    "headnorm": {"": _headnorm},
    "norm_tree": {"": _norm_tree},
    "rope": {"": _rope},
    "attention_int8": {"": _attention_int8},
    "attention_f32": {"": _attention_f32},
    "router_topk": {"": _router_topk},
    "shared_gate": {"": _shared_gate},
    "swiglu": {"": _swiglu},
    "sigmoid_gate": {"": _sigmoid_gate},
    "silu_gate": {"": _silu_gate},
    "conv_step": {"conv": _convolved, "hist": _shifted},
    "delta_gates": {"beta": _beta, "g": _decay},
}
