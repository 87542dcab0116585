"""Sums of products whose weights hold any float32: x beside them, each weight row one probe."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.order.adapters.called import CalledOp, Floats
from parity.order.own.asked import NEVER, Asked, Launch, needed, rows_of, unwritten

ONE = np.float32(1.0)


def f32_matvec(asked: Asked, launch: Launch) -> CalledOp:
    """Contract 1.5, every batch row with the same x."""
    return _product_rows(asked, launch, "f32_matvec", asked.mask)


def router_tree(asked: Asked, launch: Launch) -> CalledOp:
    """Contract 5: the router's products by tree."""
    return _product_rows(asked, launch, "router_tree", None)


def _product_rows(asked: Asked, launch: Launch, op: str, mask: int | None) -> CalledOp:
    def call(x: Floats | None, w: Floats) -> Floats:
        out = unwritten(asked.M, asked.N)
        given: dict[str, Any] = {"out": out, "w": w, "x": rows_of(needed(x), asked.M)}
        if mask is not None:
            given["variants"] = mask
        return launch(op, given)["out"].T

    return asked.called("products", asked.N, call, asked.all_rows, asked.M)


def expert_f32_matvec(asked: Asked, launch: Launch) -> CalledOp:
    """Contract 1.5 in an expert of f32 weights: the second of two, chosen by every batch row."""

    def call(x: Floats | None, w: Floats) -> Floats:
        given = {
            "out": unwritten(asked.M, 1, asked.N),
            "w": np.stack([np.full_like(w, NEVER), w]),
            "ids": np.ones((asked.M, 1), np.int32),
            "x": rows_of(needed(x), asked.M)[:, None].copy(),
            "variants": asked.mask,
        }
        return launch("expert_f32_matvec", given)["out"][:, 0].T

    return asked.called("products", asked.N, call, asked.all_rows, asked.M)


def combine(asked: Asked, launch: Launch) -> CalledOp:
    """Contract 2: K - 1 experts' outputs by rank, then the residual as the last term."""
    return _combined(asked, launch, "combine", 1)


def combine_shared(asked: Asked, launch: Launch) -> CalledOp:
    """Contract 2: K - 2 experts' outputs by rank, the shared expert's, then the residual."""
    return _combined(asked, launch, "combine_shared", 2)


def _combined(asked: Asked, launch: Launch, op: str, others: int) -> CalledOp:
    """``others``: terms that are no rank's. Every batch row has weights of its own. The residual is
    a term without a factor, so its product is made before the op; with fold_p all of them are."""
    ranks, shape = asked.K - others, (asked.M, asked.N)
    asked.require(ranks > 0, f"K counts the ranks and {others} more: {others + 1} or more")

    def call(x: Floats | None, w: Floats) -> Floats:
        x = needed(x)
        down, probs = w[:, :ranks], rows_of(x[:ranks], asked.M)
        if "fold_p" in asked.variants:
            down, probs = x[:ranks] * down, np.full_like(probs, NEVER)
        down = np.ascontiguousarray(down.reshape(*shape, ranks).transpose(0, 2, 1))
        given = {"out": unwritten(*shape), "ores": (x[-1] * w[:, -1]).reshape(shape)}
        given |= {"down": down, "probs": probs, "variants": asked.mask}
        if others > 1:
            given["gs"] = np.full((asked.M, 1), x[-2], np.float32)
            given["sh"] = np.ascontiguousarray(w[:, -2]).reshape(shape)
        return launch(op, given)["out"].reshape(-1)

    return asked.called("products", asked.M * asked.N, call, asked.all_rows)


def delta_o(asked: Asked, launch: Launch) -> CalledOp:
    """Contract 3.2: o, the state times q. With k = 0 and g = 1 the state stays what it is."""

    def call(x: Floats | None, w: Floats) -> Floats:
        given = _delta(asked, _columns(asked, w), q=needed(x), k=np.zeros(asked.K, np.float32))
        return launch("delta_step", given)["o"].reshape(-1)

    return asked.called("products", asked.N, call, _one_row(asked))


def delta_mem(asked: Asked, launch: Launch) -> CalledOp:
    """Contract 3.2: mem, the state times k. It is read back from a row more of the state, the last,
    which holds 0 and whose k is 1: it adds 0 to mem, and becomes 0 + 1 * (0 - mem) * 1."""

    def call(x: Floats | None, w: Floats) -> Floats:
        s = np.concatenate([_columns(asked, w), np.zeros((2, 1, asked.N // 2), np.float32)], axis=1)
        k = np.append(needed(x), ONE)
        given = _delta(asked, s, q=np.zeros(asked.K + 1, np.float32), k=k)
        left = launch("delta_step", given)["s"][:, -1]
        return np.float32(0.0) - left.reshape(-1)  # and not -left: of 0 - 0 that would make -0

    return asked.called("products", asked.N, call, _one_row(asked))


def _one_row(asked: Asked) -> str:
    asked.require(asked.N % 2 == 0, "N is the columns of two value heads: an even number")
    asked.require(asked.M == 1, "M rows are M launches of one: ask for M = 1")
    return "1"


def _columns(asked: Asked, w: Floats) -> Floats:
    """The state of two value heads: (2, K, N / 2), a column a probe."""
    return np.ascontiguousarray(w.reshape(2, asked.N // 2, asked.K).transpose(0, 2, 1))


def _delta(asked: Asked, s: Floats, *, q: Floats, k: Floats) -> dict[str, Any]:
    ones = np.ones(2, np.float32)
    return {
        "o": unwritten(2, asked.N // 2),
        "s": s,
        "q": q[None],
        "k": k[None],
        "v": np.zeros((2, asked.N // 2), np.float32),
        "beta": ones,
        "g": ones,
    }
