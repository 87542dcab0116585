"""Predict from the ref's dumped inputs what a sparse variant of contract 5 changes, and where.

Every key of the ref's decode steps is captured. Each op that the variant touches is done again on
those inputs, once with the contract's function and once with the variant's, element by element;
counted are the elementwise results (exponentials, cosines and sines, int8 and int16 codes) that
change. The first key, in dataflow order, whose bytes change is the prediction: up to there the
dut computes on the same inputs as the ref. With no changed result it must end the same.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from parity.families import dumped_fields
from parity.keys import Key
from parity.model.model import Model
from parity.protocol import EngineSettings, Plan
from parity.runs.run import Run, greedy
from parity_cpu.engine import Engine
from parity_cpu.ops.elementary import ucrt_cosf, ucrt_expf, ucrt_sinf
from parity_cpu.ops.expert_matvec import expert_matvec
from parity_cpu.ops.headnorm import headnorm
from parity_cpu.ops.q4_matvec import q4_matvec

F = np.float32
Scalar = Callable[[np.float32], float]
Quotient = Callable[[np.ndarray, np.float32], np.ndarray]
Heads = tuple[np.ndarray, np.ndarray]  # codes [heads, hd] and scales [heads]


def _library(name: str) -> Scalar:
    """A float function of this platform's C library, the one that the engines call."""
    function = getattr(ctypes.CDLL(None), name)
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float]
    return lambda x: float(function(float(x)))


def _divide(x: np.ndarray, scale: np.float32) -> np.ndarray:
    return x / scale


def _times_inverse(x: np.ndarray, scale: np.float32) -> np.ndarray:
    return x * F(F(1.0) / scale)


@dataclass(frozen=True)
class Functions:
    """The functions that a sparse variant may swap; the defaults are the contract's."""

    exp: Scalar = ucrt_expf
    cos: Scalar = ucrt_cosf
    sin: Scalar = ucrt_sinf
    quotient: Quotient = _divide

    def exps(self, x: np.ndarray) -> np.ndarray:
        """exp of every element of x f32[n], one call each."""
        return np.array([self.exp(value) for value in x], F)


EXACT = Functions()
SPARSE = {
    "libm_exp": Functions(exp=_library("expf")),
    "exp_via_double": Functions(exp=lambda x: math.exp(float(x))),
    "libm_sincos": Functions(cos=_library("cosf"), sin=_library("sinf")),
    "div_by_inverse": Functions(quotient=_times_inverse),
}


@dataclass
class Prediction:
    """``changed``: elementwise results that change. ``first``: tag of the first changed key."""

    changed: int = 0
    first: str | None = None
    by_field: dict[str, int] = field(default_factory=dict)  # field fed: changed results


@dataclass
class Observed:
    """One decode step of the ref: every field of a layer, and the K and V rows it could see."""

    pos: int
    tensors: dict[Key, np.ndarray]
    rows: dict[str, np.ndarray]

    def get(self, layer: int, name: str) -> np.ndarray:
        """The captured value of one field."""
        return self.tensors[Key(self.pos, layer, name)]


def predict(run: Run, variant: str) -> Prediction:
    """What ``variant`` on the exact tier changes in the decode steps of ``run`` (--prefill ref).

    ``run.model`` must have Q4_0 matrices; fields +ffn are observed whatever the run dumps.
    """
    return compare_functions(run, SPARSE[variant])


def compare_functions(run: Run, functions: Functions) -> Prediction:
    """The same for any functions in the place of the contract's."""
    found = Prediction()
    for step in observe(run):
        for key, changed, value in redo(run.model, step, functions):
            found.changed += changed
            name = key.field
            if changed:
                found.by_field[name] = found.by_field.get(name, 0) + changed
            if found.first is None and value.tobytes() != step.tensors[key].tobytes():
                found.first = key.tag
    return found


def observe(run: Run) -> list[Observed]:
    """Run the ref (cpu, exact) and capture every key of the decode steps."""
    engine = Engine(EngineSettings())
    engine.load(run.model, run.positions)
    token = greedy(engine.prefill(run.prompt)[-1].logits, 0)
    fields = dumped_fields(run.model.config, ("ffn",))
    steps = []
    for pos in range(run.start, run.positions):
        layers = range(run.model.config.layers)
        keys = frozenset(Key(pos, layer, name) for layer in layers for name in fields)
        done = engine.step(token, Plan(fields=(), tensors=keys))
        steps.append(Observed(pos, done.tensors, engine.read_state()))
        token = greedy(done.logits, 0)
    return steps


def redo(
    model: Model, step: Observed, functions: Functions
) -> Iterator[tuple[Key, int, np.ndarray]]:
    """(key, changed results that feed it, value with ``functions``) of one step, in order.

    Only keys whose op calls one of the functions.
    """
    for number in range(model.config.layers):
        layer = _Layer(model, step, number, functions)
        parts = [*layer.keys(), *layer.values(), *layer.queries(), *layer.attention()]
        if model.config.experts:
            parts += [*layer.router(), *layer.experts(), *layer.activation(), *layer.down()]
        else:
            parts += layer.activation()
        for name, changed, value in parts:
            yield Key(step.pos, number, name), changed, value


Part = tuple[str, int, np.ndarray]


@dataclass
class _Layer:
    """One layer of one step, done again."""

    model: Model
    step: Observed
    number: int
    functions: Functions

    def keys(self) -> list[Part]:
        """K: rope of the head norm, then int8 rows."""
        changed, turned = self._turn(self.get("knorm"))
        _, exact_turned = self._turn(self.get("knorm"), EXACT)
        return self._stored("k", changed, turned, exact_turned)

    def values(self) -> list[Part]:
        """V: the projection, int8 rows."""
        config = self.model.config
        raw = self._product("v_proj", config.n_kv * config.head_dim)
        heads = raw.reshape(config.n_kv, config.head_dim)
        return self._stored("v", 0, heads, heads)

    def queries(self) -> list[Part]:
        """Q: the projection, head norm, rope."""
        config = self.model.config
        raw = self._product("q_proj", config.n_q * config.head_dim)
        heads = raw.reshape(1, config.n_q, config.head_dim)
        normed = np.empty_like(heads)
        headnorm(normed, heads, self._weight("q_norm"), F(config.eps), 0)
        changed, turned = self._turn(normed[0])
        return [("qrope", changed, turned)]

    def attention(self) -> list[Part]:
        """attn of the query's int8 form over the rows of the cache."""
        query = self.get("qrope")
        codes, scales = quantise8(query, self.functions.quotient)
        changed = _differ(codes, quantise8(query, _divide)[0])
        out = np.empty_like(query)
        for head in range(len(query)):
            changes, out[head] = self._head(head, codes[head], scales[head])
            changed += changes
        return [("attn", changed, out)]

    def router(self) -> list[Part]:
        """topk and topp of the router's logits."""
        config, logits = self.model.config, self.get("rlogits")
        given = logits - logits.max()
        e = self.functions.exps(given)
        changed = _differ(e, EXACT.exps(given))
        soft = e / _ascending(e)
        ids = np.argsort(-soft, kind="stable")[: config.top_k].astype(np.int32)
        probs = soft[ids]
        if config.norm_topk_prob:
            probs = probs / _ascending(probs)
        return [("topk", changed, ids), ("topp", 0, probs)]

    def experts(self) -> list[Part]:
        """gate and up of the int16 form of fnrm."""
        changed, codes, scales = self._codes16(self.get("fnrm")[None])
        given = (codes[None], scales[None])
        gate, up = self._expert("gate", given), self._expert("up", given)
        return [("gate", changed, gate), ("up", 0, up)]

    def activation(self) -> list[Part]:
        """act: silu of gate, times up."""
        gate, up = self.get("gate"), self.get("up")
        e = self.functions.exps(-gate.reshape(-1))
        changed = _differ(e, EXACT.exps(-gate.reshape(-1)))
        sigmoid = F(1.0) / (F(1.0) + e.reshape(gate.shape))
        return [("act", changed, gate * sigmoid * up)]

    def down(self) -> list[Part]:
        """down of the int16 form of act."""
        changed, codes, scales = self._codes16(self.get("act"))
        given = (codes[None], scales[None])
        return [("down", changed, self._expert("down", given))]

    def get(self, name: str) -> np.ndarray:
        """The captured value of one field of this layer."""
        return self.step.get(self.number, name)

    def _weight(self, name: str) -> np.ndarray:
        return self.model.tensor(f"layers.{self.number}.{name}")

    def _product(self, name: str, rows: int) -> np.ndarray:
        out = np.empty((1, rows), F)
        d, qs = self._weight(f"{name}.d"), self._weight(f"{name}.qs")
        q4_matvec(out, d, qs, self.get("nrm")[None], 0)
        return out[0]

    def _turn(
        self, heads: np.ndarray, functions: Functions | None = None
    ) -> tuple[int, np.ndarray]:
        """(changed cosines and sines, rope of heads f32[heads, hd])."""
        used = self.functions if functions is None else functions
        angles = F(self.step.pos) * self.model.tensor("inv_freq")
        c, s = (np.array([call(angle) for angle in angles], F) for call in (used.cos, used.sin))
        exact = [np.array([call(a) for a in angles], F) for call in (EXACT.cos, EXACT.sin)]
        low, high = heads[:, : len(angles)], heads[:, len(angles) :]
        out = np.concatenate([low * c - high * s, high * c + low * s], axis=1)
        return _differ(c, exact[0]) + _differ(s, exact[1]), out

    def _stored(self, part: str, changed: int, x: np.ndarray, exact: np.ndarray) -> list[Part]:
        """Codes and scales of x; ``exact`` is x as the contract makes it."""
        codes, scales = quantise8(x, self.functions.quotient)
        by_quotient, _ = quantise8(exact, self.functions.quotient)
        changed += _differ(by_quotient, quantise8(exact, _divide)[0])
        return [(part, changed, codes), (f"{part}s", 0, scales)]

    def _head(self, head: int, q: np.ndarray, q_scale: np.float32) -> tuple[int, np.ndarray]:
        """(changed exponentials, output f32[hd]) of one query head (contract 1.8)."""
        config, rows = self.model.config, self.step.rows
        g = head // (config.n_q // config.n_kv)
        k, ks, v, vs = (rows[f"l{self.number}_{part}"][:, g] for part in ("k", "ks", "v", "vs"))
        dots = (k.astype(np.int32) @ q.astype(np.int32)).astype(F)
        s = (dots * (q_scale * ks)) * F(config.sm_scale)
        top = np.maximum.accumulate(s)
        given = np.concatenate([top[:-1] - top[1:], s[1:] - top[1:]])
        e = self.functions.exps(given)
        changed = _differ(e, EXACT.exps(given))
        kept = np.concatenate([[F(0.0)], e[: len(s) - 1]])
        p = np.concatenate([[F(1.0)], e[len(s) - 1 :]])
        total, acc = F(0.0), np.zeros(v.shape[1], F)
        for t in range(len(s)):
            total = total * kept[t] + p[t]
            acc = acc * kept[t] + (p[t] * vs[t]) * v[t].astype(F)
        return changed, acc / total

    def _codes16(self, x: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
        """(changed codes, codes int16[R, n], scales f32[R, n/32]) of x f32[R, n]."""
        blocks = x.reshape(-1, 32)
        codes, scales = quantise(blocks, 32767, np.int16, self.functions.quotient)
        exact, _ = quantise(blocks, 32767, np.int16, _divide)
        return _differ(codes, exact), codes.reshape(x.shape), scales.reshape(len(x), -1)

    def _expert(self, name: str, given: Heads) -> np.ndarray:
        out = np.empty((1, *self.get(name).shape), F)
        ids, probs = self.get("topk")[None], self.get("topp")[None]
        d, qs = self._weight(f"experts.{name}.d"), self._weight(f"experts.{name}.qs")
        expert_matvec(out, d, qs, ids, probs, *given, 0)
        return out[0]


def quantise8(x: np.ndarray, quotient: Quotient) -> Heads:
    """int8 codes and scales of heads f32[heads, hd] (contract 1.6)."""
    return quantise(x, 127, np.int8, quotient)


def quantise(
    x: np.ndarray, limit: int, dtype: type[np.signedinteger], quotient: Quotient
) -> tuple[np.ndarray, np.ndarray]:
    """Codes [R, n] and scales f32[R] of x f32[R, n], one scale a row (contract 1.4, 1.6)."""
    scales = np.abs(x).max(axis=1) / F(limit)
    codes = np.zeros(x.shape, dtype)
    for row, scale in enumerate(scales):
        if scale != 0.0:
            codes[row] = np.clip(np.rint(quotient(x[row], scale)), -limit, limit).astype(dtype)
    return codes, scales


def _ascending(x: np.ndarray) -> np.float32:
    total = F(0.0)
    for value in x:
        total = F(total + value)
    return total


def _differ(a: np.ndarray, b: np.ndarray) -> int:
    """How many elements have other bytes."""
    kind = np.dtype(f"u{a.dtype.itemsize}")
    return int((a.view(kind) != b.view(kind)).sum())
