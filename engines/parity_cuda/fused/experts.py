"""The MoE FFN of one row in three launches: route, gate and up, down. Contract 1.1, 1.4, 1.5, 2.

The router's chain is long (one addition after the other over ``hidden``), so the experts are chosen
from a guess first: the products summed in a quick order, before the norm's root is known. The exact
sums are made beside gate and up.
``down`` certifies the guess by the exact probabilities; where a rank's expert is another one, it
makes that expert anew. What the launches leave is what the contract says, whatever was guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity.errors import ParityBug
from parity.model.layers import Q4
from parity.variants import variant_mask
from parity_cuda.backend import Buffer
from parity_cuda.ops import Ops, padded

ROUTER_TREE = variant_mask(["router_tree"])
NORM_TREE = variant_mask(["norm_tree"])
THREADS = 256  # fused_route.cu, fused_experts.cu
DOWN_THREADS = 288  # fused_down.cu
WARPS = THREADS // 32
CHAIN_ROWS = 4  # router rows of a block beside gate and up
ACT_TILE, MOST_TILE = 32, 16  # experts.cuh; elements of x in a block of fused_down
PITCH = 20  # words of a staged block of 32 int16 (q4_int.cuh)
MOST_BYTES = 224 * 1024  # of shared memory, that a block may have


@dataclass(frozen=True)
class Routing:
    """What the router makes of a row. fnrm: (1, hidden) f32; q: (1, 1, hidden) int16 and scale: (1,
    1, hidden / 32) f32, its int16 form; rlogits: (1, E) f32; guess: (1, E) f32, sums that choose
    the experts at first, None where rlogits do."""

    fnrm: Buffer
    q: Buffer
    scale: Buffer
    rlogits: Buffer
    guess: Buffer | None

    @property
    def chosen_by(self) -> Buffer:
        """What fused_route makes, and what the experts are chosen by at first."""
        return self.rlogits if self.guess is None else self.guess


@dataclass(frozen=True)
class Acts:
    """gate, up, act: (1, k, inter) f32; q: (1, k, inter) int16 and scale: (1, k, inter / 32) f32,
    the int16 form of act."""

    gate: Buffer
    up: Buffer
    act: Buffer
    q: Buffer
    scale: Buffer


@dataclass(frozen=True)
class Shared:
    """The shared expert: w (1, hidden) f32, the weights of its gate; logit and gs: (1, 1) f32; sh:
    (1, hidden) f32."""

    w: Buffer
    logit: Buffer
    gs: Buffer
    sh: Buffer


@dataclass(frozen=True)
class Weights:
    """router: (E, hidden) f32; gate, up: [E, inter, hidden] and down: [E, hidden, inter] Q4_0."""

    router: Buffer
    gate: Q4[Buffer]
    up: Q4[Buffer]
    down: Q4[Buffer]


def guesses(variants: int) -> bool:
    """Whether the experts are guessed: a router summed by tree has no long chain."""
    return not variants & ROUTER_TREE


def route(
    ops: Ops,
    made: Routing,
    ores: Buffer,
    norm: Buffer,
    router: Buffer,
    eps: np.float32,
    variants: int,
) -> None:
    """fnrm, its int16 form, and the logits: a guess, or by tree as router_tree asks. norm:
    (hidden,) f32."""
    experts, hidden = router.shape
    guess = made.guess is not None
    if guess != guesses(variants):
        raise ParityBug(f"fused_route: guess {guess} under variants {variants:#x}")
    stride = _stride(hidden) if guess else max(4, padded(hidden))
    tile = _over(experts, min(experts, ops.backend.processors))
    tiles, makers = _over(experts, tile), _over(hidden, THREADS)
    room = max(hidden // 8 + 4, padded(hidden) if variants & NORM_TREE else 0, tile * WARPS)
    floats = tile * stride + _four(hidden) + room
    sizes = (variants, experts, hidden, stride, makers)
    outs = [made.fnrm, made.q, made.scale, made.chosen_by]
    args = [*outs, ores, norm, router, eps, *map(np.int32, sizes)]
    grid = (makers + tiles,)
    ops.backend.launch("fused_route", grid, THREADS, args, shared=4 * floats, overlap=True)


def gate_up(
    ops: Ops, acts: Acts, routing: Routing, weights: Weights, shared: Shared | None, variants: int
) -> None:
    """gate, up and act of the experts with the largest guessed logits; beside them the exact
    logits where those were guessed, and the shared expert's gate."""
    experts, hidden = weights.router.shape
    _, ranks, inter = acts.act.shape
    tiles = 0 if routing.guess is None else _over(experts, _chain_rows(ops))
    rows = _over(experts, tiles) if tiles else int(shared is not None)
    stride, nb = _stride(hidden), hidden // 32
    chains = rows * stride + _four(hidden)
    words = _act_words(experts, ranks, nb)
    none = (routing.rlogits, routing.rlogits, routing.fnrm)  # never touched without a shared expert
    logit, gs, w = none if shared is None else (shared.logit, shared.gs, shared.w)
    outs = [acts.gate, acts.up, acts.act, acts.q, acts.scale, routing.rlogits, logit, gs]
    inputs = [routing.chosen_by, routing.fnrm, routing.q, routing.scale]
    matrices = [*_arrays(weights.gate), *_arrays(weights.up), weights.router, w]
    sizes = (variants, tiles, shared is not None, experts, ranks, inter, hidden, stride)
    args = [*outs, *inputs, *matrices, *map(np.int32, sizes)]
    grid = (tiles + (shared is not None) + ranks * _over(inter, ACT_TILE),)
    bytes_ = 4 * max(chains, words)
    ops.backend.launch("fused_experts", grid, THREADS, args, shared=bytes_, overlap=True)


def down(
    ops: Ops,
    outs: tuple[Buffer, Buffer, Buffer, Buffer],
    ores: Buffer,
    acts: Acts,
    routing: Routing,
    weights: Weights,
    shared: Shared | None,
    norm: bool,
    variants: int,
) -> None:
    """outs: x (1, hidden) f32, down (1, k, hidden) f32, topk (1, k) int32, topp (1, k) f32. Writes
    gate, up and act anew where the guess was wrong. norm: norm_topk_prob."""
    x, product, topk, topp = outs
    experts, hidden = weights.router.shape
    _, ranks, inter = acts.act.shape
    tile = min(MOST_TILE, _over(hidden, ops.backend.processors))
    bytes_ = 4 * _down_words(tile, experts, ranks, inter)
    given = [ores, routing.chosen_by, routing.rlogits, acts.q, acts.scale, *_arrays(weights.down)]
    again = [routing.q, routing.scale, *_arrays(weights.gate), *_arrays(weights.up)]
    last = [ores, ores] if shared is None else [shared.gs, shared.sh]
    first = [x, product, topk, topp, acts.gate, acts.up, acts.act]
    sizes = (variants, norm, shared is not None, experts, ranks, inter, hidden, tile)
    args = [*first, *given, *again, *last, *map(np.int32, sizes)]
    grid = (_over(hidden, tile),)
    ops.backend.launch("fused_down", grid, DOWN_THREADS, args, shared=bytes_, overlap=True)


def fits(experts: int, ranks: int, inter: int, hidden: int) -> bool:
    """Whether the memory of a block is enough."""
    chains = CHAIN_ROWS * _stride(hidden) + _four(hidden)
    acts = _act_words(experts, ranks, hidden // 32)
    products = _down_words(MOST_TILE, experts, ranks, inter)
    return 4 * max(chains, acts, products) <= MOST_BYTES


def terms_stride(nb: int) -> int:
    """Floats from the terms of a row to those of the next (q4_int.cuh)."""
    return (_over(nb, 4) | 1) * 4


def _act_words(experts: int, ranks: int, nb: int) -> int:
    """What experts.cuh lays out: weights, terms, the row's int16, and what chooses."""
    weights = 2 * ACT_TILE * nb * 18 // 4
    return weights + 2 * ACT_TILE * terms_stride(nb) + _input(nb) + _eight(experts) + ranks


def _down_words(tile: int, experts: int, ranks: int, inter: int) -> int:
    """What down.cuh lays out: terms, int16 of all ranks, and what chooses."""
    rows, nb = ranks * tile, inter // 32
    given = ranks * nb * PITCH + _four(ranks * nb)
    return rows * terms_stride(nb) + given + _eight(experts) + rows + 3 * ranks


def _chain_rows(ops: Ops) -> int:
    """One block has them all on a device of one processor."""
    return CHAIN_ROWS if ops.backend.processors > 1 else MOST_TILE


def _input(nb: int) -> int:
    """Words of a staged row of int16 and its scales."""
    return nb * PITCH + _four(nb)


def _stride(cols: int) -> int:
    """Floats from a staged row to the next: 16 bytes at a time meet no bank twice."""
    return _four(cols) + 4


def _arrays(matrix: Q4[Buffer]) -> list[Buffer]:
    return [matrix.d, matrix.qs]


def _four(count: int) -> int:
    return _over(count, 4) * 4


def _eight(count: int) -> int:
    return _over(count, 8) * 8


def _over(count: int, by: int) -> int:
    """Rounded up."""
    return -(-count // by)
