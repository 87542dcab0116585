"""A second writing of attention and the router, vectorised, with named faults to plant."""

from __future__ import annotations

import numpy as np

from tests.oracle.elementary import expf
from tests.oracle.twin_products import Array, F, Fault, fused
from tests.oracle.twin_rows import each, exponential

_SOFTMAX_FAULTS = (
    "correction skipped",
    "correction of the values alone",
    "two passes",
    "two passes, summed by tree",
    "two passes, summed by parts",
    "maximum not subtracted",
    "every row sees the whole block",
    "mask at the top left",
    "heads interleaved",
    "one slot too many",
    "newest key left out",
    "times the reciprocal of the sum",
    "starts from the first term",
    "correctly rounded exp",
    "platform's exp",
    "fused",
    "keys descending",
)
FAULTS = {
    "attention_int8": (
        "value scaled before the weight",
        "scores scaled left to right",
        "softmax scale joins the scales",
        *_SOFTMAX_FAULTS,
    ),
    "attention_f32": (
        "dot descending",
        "dot fused",
        "softmax scale in the query",
        *_SOFTMAX_FAULTS,
    ),
    "router_topk": (
        "ties to the higher id",
        "ranked by logit",
        "maximum not subtracted",
        "summed by tree",
        "times the reciprocal of the sum",
        "renormalised in order of ids",
        "never renormalised",
        "always renormalised",
        "softmax over the chosen",
        "correctly rounded exp",
        "platform's exp",
        "sorted by id",
    ),
}


# --- attention -------------------------------------------------------------------------------


def _score(dots: Array, q_scale: Array, k_scale: Array, sm: np.float32, fault: Fault) -> Array:
    if fault == "scores scaled left to right":
        return ((dots * q_scale) * k_scale) * sm
    if fault == "softmax scale joins the scales":
        return dots * ((q_scale * k_scale) * sm)
    return (dots * (q_scale * k_scale)) * sm


def _two_passes(scores: Array, v: Array, v_scale: Array, fault: Fault) -> Array:
    p = each(expf, scores - scores.max())
    added = (p * v_scale)[:, None] * v
    if fault == "two passes, summed by parts":
        cuts = range(128, len(p), 128)
        total, acc = (sum(map(_running, np.split(x, cuts)), F(0.0)) for x in (p, added))
        return np.asarray(acc / total)
    total = _tree_sum(p) if fault == "two passes, summed by tree" else _running(p)
    return np.asarray(_running(added) / total)


def _running(values: Array) -> Array:
    """The sum along the first axis, ascending from +0.0."""
    total = np.zeros(values.shape[1:], F)
    for value in values:
        total = total + value
    return np.asarray(total)


def _addend(p: np.float32, v_scale: np.float32, v: Array, fault: Fault) -> Array:
    if fault == "value scaled before the weight":
        return p * (v_scale * v)
    return (p * v_scale) * v


def _online(scores: Array, v: Array, v_scale: Array, fault: Fault) -> Array:
    """The running softmax over keys; v f32[keys, hd]."""
    exp = exponential(fault)
    m, total, acc = scores[0], F(1.0), F(0.0) + v_scale[0] * v[0]
    if fault == "starts from the first term":
        acc = v_scale[0] * v[0]
    for t in range(1, len(scores)):
        new_m = scores[t] if scores[t] > m else m
        c, p = exp(F(m - new_m)), exp(F(scores[t] - new_m))
        m = new_m
        total = total * (F(1.0) if "correction" in str(fault) else c) + p
        kept = acc if fault == "correction skipped" else acc * c
        if fault == "fused":
            acc = fused(p * v_scale[t], v[t], kept)
        else:
            acc = kept + _addend(p, v_scale[t], v[t], fault)
    if fault == "times the reciprocal of the sum":
        return acc * (F(1.0) / total)
    return acc / total


def _not_subtracted(scores: Array, v: Array, v_scale: Array) -> Array:
    p = each(expf, scores)
    acc, total = np.zeros(v.shape[1], F), F(0.0)
    for t in range(len(scores)):
        total = total + p[t]
        acc = acc + (p[t] * v_scale[t]) * v[t]
    return acc / total


def _attend(scores: Array, v: Array, v_scale: Array, fault: Fault) -> Array:
    if fault == "keys descending":
        scores, v, v_scale = scores[::-1], v[::-1], v_scale[::-1]
    if str(fault).startswith("two passes"):
        return _two_passes(scores, v, v_scale, fault)
    if fault == "maximum not subtracted":
        return _not_subtracted(scores, v, v_scale)
    return _online(scores, v, v_scale, fault)


def _visible(pos: int, m: int, rows: int, capacity: int, fault: Fault) -> int:
    """How many keys row m sees."""
    if fault == "every row sees the whole block":
        return pos + rows
    if fault == "mask at the top left":
        return m + 1
    if fault == "one slot too many":
        return min(pos + m + 2, capacity)
    if fault == "newest key left out":
        return max(pos + m, 1)
    return pos + m + 1


def attention_int8(
    q: Array,
    q_scale: Array,
    k: Array,
    k_scale: Array,
    v: Array,
    v_scale: Array,
    sm_scale: np.float32,
    pos: int,
    fault: Fault = None,
) -> Array:
    """Contract 1.8."""
    rows, n_q, hd = q.shape
    n_kv = k.shape[1]
    out = np.zeros((rows, n_q, hd), F)
    for m in range(rows):
        seen = _visible(pos, m, rows, k.shape[0], fault)
        for h in range(n_q):
            g = h % n_kv if fault == "heads interleaved" else h // (n_q // n_kv)
            dots = (k[:seen, g].astype(np.int32) @ q[m, h].astype(np.int32)).astype(F)
            scores = _score(dots, q_scale[m, h], k_scale[:seen, g], sm_scale, fault)
            values = v[:seen, g].astype(F)
            out[m, h] = _attend(scores, values, v_scale[:seen, g], fault)
    return out


def _float_dots(q: Array, k: Array, fault: Fault) -> Array:
    """q f32[hd] times each row of k f32[keys, hd], ascending."""
    order = range(len(q))[::-1] if fault == "dot descending" else range(len(q))
    acc = np.zeros(k.shape[0], F)
    for j in order:
        acc = fused(q[j], k[:, j], acc) if fault == "dot fused" else acc + q[j] * k[:, j]
    return acc


def attention_f32(
    q: Array, k: Array, v: Array, sm_scale: np.float32, pos: int, fault: Fault = None
) -> Array:
    """Contract 1.8, f32 form: a value scale of 1 multiplies exactly."""
    rows, n_q, _ = q.shape
    n_kv = k.shape[1]
    out = np.zeros(q.shape, F)
    for m in range(rows):
        seen = _visible(pos, m, rows, k.shape[0], fault)
        for h in range(n_q):
            g = h % n_kv if fault == "heads interleaved" else h // (n_q // n_kv)
            if fault == "softmax scale in the query":
                scores = _float_dots(q[m, h] * sm_scale, k[:seen, g], fault)
            else:
                scores = _float_dots(q[m, h], k[:seen, g], fault) * sm_scale
            out[m, h] = _attend(scores, v[:seen, g], np.ones(seen, F), fault)
    return out


# --- router ----------------------------------------------------------------------------------


def _tree_sum(values: Array) -> np.float32:
    x = np.pad(values, (0, (1 << (len(values) - 1).bit_length()) - len(values)))
    while len(x) > 1:
        x = x[: len(x) // 2] + x[len(x) // 2 :]
    return F(x[0])


def _probabilities(logits: Array, fault: Fault) -> Array:
    exp = exponential(fault)
    top = F(0.0) if fault == "maximum not subtracted" else logits.max()
    e = each(exp, logits - top)
    total = _tree_sum(e) if fault == "summed by tree" else _running(e)
    if fault == "times the reciprocal of the sum":
        return e * (F(1.0) / total)
    return e / total


def _ranked(p: Array, logits: Array, k: int, fault: Fault) -> Array:
    """The ids of the first k by rank; NaN ranks last."""
    by = logits if fault == "ranked by logit" else p
    if fault == "ties to the higher id":
        return (len(p) - 1 - np.argsort(-by[::-1], kind="stable"))[:k]
    ids = np.argsort(-by, kind="stable")[:k]
    return np.sort(ids) if fault == "sorted by id" else ids


def _route(logits: Array, k: int, norm: bool, fault: Fault) -> tuple[Array, Array]:
    p = _probabilities(logits, fault)
    ids = _ranked(p, logits, k, fault)
    chosen = p[ids]
    if fault == "softmax over the chosen":
        return ids, _probabilities(logits[ids], None)
    if fault == "never renormalised" or not (norm or fault == "always renormalised"):
        return ids, chosen
    in_order = p[np.sort(ids)] if fault == "renormalised in order of ids" else chosen
    return ids, chosen / _running(in_order)


def router_topk(logits: Array, k: int, norm: bool, fault: Fault = None) -> tuple[Array, Array]:
    """Contract 2: softmax, top-k, renormalising."""
    rows = [_route(row, k, norm, fault) for row in logits]
    ids = np.stack([row[0] for row in rows]).astype(np.int32)
    return ids, np.stack([row[1] for row in rows]).astype(F)
