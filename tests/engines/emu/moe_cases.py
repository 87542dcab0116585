"""The MoE FFN of one row by the fused launches and by the ops, on any backend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parity.model.layers import Q4
from parity.variants import variant_mask
from parity_cuda.backend import Backend, Buffer
from parity_cuda.fused import experts as launches
from parity_cuda.ops import Ops
from parity_cuda.products import ExpertInput, experts
from tests.engines.cuda.op_runner import GARBAGE, SENTINEL, WroteOutside

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]
F = np.float32
EPS = F(1e-6)
FOLD_P, ROUTER_TREE = variant_mask(["fold_p"]), variant_mask(["router_tree"])
NORM_TREE = variant_mask(["norm_tree"])


@dataclass(frozen=True)
class Shape:
    """``data``: random; near (routers that differ by less than their sums' rounding), equal (all
    routers one), edge (zeros of both signs, subnormals, large values), nan or inf (in the row).
    ``guess``: the experts are guessed; else router_tree is among the variants."""

    experts: int
    ranks: int
    inter: int
    hidden: int
    data: str = "random"
    shared: bool = False
    norm: bool = True
    guess: bool = True

    def __str__(self) -> str:
        sizes = f"{self.ranks} of {self.experts} x {self.inter} x {self.hidden}"
        flags = [name for name in ("shared", "norm", "guess") if getattr(self, name)]
        return ", ".join([sizes, self.data, *flags])


def asked(shape: Shape, mask: int) -> int:
    """The variants of a step with these, where a router without a guess is summed by tree."""
    return mask if shape.guess else mask | ROUTER_TREE


@dataclass(frozen=True)
class Masks:
    """The variants of each launch; the product has one mask for all."""

    route: int
    gate_up: int
    down: int


def data(shape: Shape) -> Arrays:
    """Everything that the launches read."""
    rng = np.random.default_rng((shape.experts, shape.inter, shape.hidden, len(shape.data)))
    made = {
        "ores": rng.standard_normal((1, shape.hidden)).astype(F),
        "norm": rng.random(shape.hidden).astype(F) + F(0.5),
        "router": _router(rng, shape),
        "shared_gate": (rng.standard_normal((1, shape.hidden)) * 0.1).astype(F),
        "sh": rng.standard_normal((1, shape.hidden)).astype(F),
    }
    for name, rows, cols in (
        ("gate", shape.inter, shape.hidden),
        ("up", shape.inter, shape.hidden),
        ("down", shape.hidden, shape.inter),
    ):
        made[f"{name}.d"], made[f"{name}.qs"] = _q4(rng, shape.experts, rows, cols)
    row = made["ores"][0]
    if shape.data == "edge":
        row[:] = rng.choice(np.array([0.0, -0.0, 1e-41, -3e-39, 1e18, -2.5], F), row.size)
    elif shape.data in ("nan", "inf"):
        row[row.size // 2] = F(shape.data)
    return made


def _router(rng: np.random.Generator, shape: Shape) -> Array:
    made = (rng.standard_normal((shape.experts, shape.hidden)) * 0.1).astype(F)
    if shape.data in ("near", "equal"):
        near = rng.standard_normal(made.shape) * (2e-8 if shape.data == "near" else 0)
        made = (made[:1] + near).astype(F)
    return made


def _q4(rng: np.random.Generator, count: int, rows: int, cols: int) -> tuple[Array, Array]:
    d = (rng.standard_normal((count, rows, cols // 32)) * 0.02).astype(np.float16)
    return d.view(np.uint16), rng.integers(0, 256, (count, rows, cols // 2), np.uint8)


class Room:
    """Outputs that start as garbage, with sentinel bytes behind them."""

    def __init__(self, backend: Backend, garbage: int = GARBAGE) -> None:
        self.backend, self.garbage = backend, garbage
        self._made: list[tuple[str, Buffer]] = []

    def take(self, name: str, shape: tuple[int, ...], dtype: type = np.float32) -> Buffer:
        """A new one."""
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        whole = self.backend.upload(np.full(count + SENTINEL, self.garbage, np.uint8))
        self._made.append((name, whole))
        return whole[:count].view(dtype).reshape(shape)

    def check(self) -> None:
        """Raise WroteOutside where a sentinel is gone."""
        for name, whole in self._made:
            if (self.backend.download(whole[-SENTINEL:]) != self.garbage).any():
                raise WroteOutside(f"{name}: wrote past the end of its output")


def by_launches(
    backend: Backend, shape: Shape, given: Arrays, masks: Masks, garbage: int = GARBAGE
) -> tuple[Arrays, bool]:
    """Every field, and whether the last launch made an expert anew."""
    sent = {name: backend.upload(array) for name, array in given.items()}
    room, ops, ranks = Room(backend, garbage), Ops(backend), shape.ranks
    take, hidden, inter = room.take, shape.hidden, shape.inter
    weights = launches.Weights(
        sent["router"], *(Q4(sent[f"{n}.d"], sent[f"{n}.qs"]) for n in ("gate", "up", "down"))
    )
    routing = launches.Routing(
        take("fnrm", (1, hidden)), *_int16(take, "in16", 1, hidden),
        take("rlogits", (1, shape.experts)),
        take("guess", (1, shape.experts)) if shape.guess else None,
    )  # fmt: skip
    gate, up, act = (take(name, (1, ranks, inter)) for name in ("gate", "up", "act"))
    acts = launches.Acts(gate, up, act, *_int16(take, "act16", ranks, inter))
    shared = None
    if shape.shared:
        made = (take("logit", (1, 1)), take("gs", (1, 1)), sent["sh"])
        shared = launches.Shared(sent["shared_gate"], *made)
    first = asked(shape, masks.route)
    launches.route(ops, routing, sent["ores"], sent["norm"], sent["router"], EPS, first)
    launches.gate_up(ops, acts, routing, weights, shared, masks.gate_up)
    before = backend.download(act).tobytes()
    outs = (take("x", (1, hidden)), take("down", (1, ranks, hidden)),
            take("topk", (1, ranks), np.int32), take("topp", (1, ranks)))  # fmt: skip
    held = (sent["ores"], acts, routing, weights, shared)
    launches.down(ops, outs, *held, shape.norm, masks.down)
    room.check()
    fields = {"fnrm": routing.fnrm, "rlogits": routing.rlogits, "topk": outs[2], "topp": outs[3],
              "gate": gate, "up": up, "act": act, "down": outs[1], "x": outs[0]}  # fmt: skip
    if shared is not None:
        fields["gs"] = shared.gs
    found = {name: backend.download(buffer) for name, buffer in fields.items()}
    return found, before != found["act"].tobytes()


def _int16(take: Any, name: str, groups: int, width: int) -> tuple[Buffer, Buffer]:
    scale = take(f"{name}_scale", (1, groups, width // 32))
    return take(name, (1, groups, width), np.int16), scale


def by_ops(backend: Backend, shape: Shape, given: Arrays, mask: int) -> Arrays:
    """The same fields, one op after the other."""
    sent = {name: backend.upload(array) for name, array in given.items()}
    ops, ranks, hidden, inter = Ops(backend), shape.ranks, shape.hidden, shape.inter

    def take(*sizes: int, dtype: type = np.float32) -> Buffer:
        return backend.empty(sizes, dtype)

    fnrm, rlogits, ids = take(1, hidden), take(1, shape.experts), take(1, ranks, dtype=np.int32)
    norm = ops.norm_tree if mask & NORM_TREE else ops.rmsnorm
    norm(fnrm, sent["ores"], sent["norm"], EPS, mask)
    if mask & ROUTER_TREE:
        ops.router_tree(rlogits, sent["router"], fnrm)
    else:
        ops.f32_matvec(rlogits, sent["router"], fnrm, mask)
    probs = take(1, ranks)
    ops.router_topk(ids, probs, rlogits, shape.norm, mask)
    gate, up, act = (take(1, ranks, inter) for _ in range(3))
    down, x = take(1, ranks, hidden), take(1, hidden)
    matrices = {n: Q4(sent[f"{n}.d"], sent[f"{n}.qs"]) for n in ("gate", "up", "down")}

    def int16(values: Buffer) -> ExpertInput:
        _, groups, width = values.shape
        q, scale = take(1, groups, width, dtype=np.int16), take(1, groups, width // 32)
        return ExpertInput(ops, values, q, scale, mask)

    row = int16(fnrm.reshape(1, 1, hidden))
    experts(gate, matrices["gate"], ids, probs, row, mask & ~FOLD_P)
    experts(up, matrices["up"], ids, probs, row, mask & ~FOLD_P)
    ops.swiglu(act, gate, up, mask)
    experts(down, matrices["down"], ids, probs, int16(act), mask)
    fields = {"fnrm": fnrm, "rlogits": rlogits, "topk": ids, "topp": probs,
              "gate": gate, "up": up, "act": act, "down": down, "x": x}  # fmt: skip
    if shape.shared:
        logit, fields["gs"] = take(1, 1), take(1, 1)
        ops.f32_matvec(logit, sent["shared_gate"], fnrm, mask)
        ops.shared_gate(fields["gs"], logit, mask)
        ops.combine_shared(x, sent["ores"], down, probs, fields["gs"], sent["sh"], mask)
    else:
        ops.combine(x, sent["ores"], down, probs, mask)
    return {name: backend.download(buffer) for name, buffer in fields.items()}


def differing(one: Arrays, other: Arrays) -> list[str]:
    """Fields that are not the same in dtype, shape and bytes."""
    assert one.keys() == other.keys()
    kinds = {name: (a.dtype, a.shape, a.tobytes()) for name, a in one.items()}
    return [n for n, b in other.items() if kinds[n] != (b.dtype, b.shape, b.tobytes())]


def cases() -> list[Shape]:
    """Odd sizes, tiles that are not full, every kind of data."""
    sizes = ((8, 3, 96, 160), (5, 5, 32, 32), (13, 2, 64, 96), (3, 1, 32, 64), (37, 9, 32, 288))
    plain = [Shape(*size, shared=at % 2 == 0) for at, size in enumerate(sizes)]
    kinds = ("near", "equal", "edge", "nan", "inf")
    others = [replace(plain[at % 2], data=kind) for kind in kinds for at in range(2)]
    unnormed = [replace(plain[0], norm=False), replace(plain[0], data="nan", norm=False)]
    small = [*plain, *others, *unnormed]
    return [*small, *(replace(shape, guess=False) for shape in small[:7])]
