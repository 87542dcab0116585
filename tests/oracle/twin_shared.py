"""A second, vectorised writing of the shared expert's ops, with named faults to plant."""

from __future__ import annotations

from tests.oracle.twin_products import Array, F, Fault, flush, fused
from tests.oracle.twin_rows import each, exponential

FAULTS: dict[str, tuple[str, ...]] = {
    "shared_gate": (
        "not squashed",
        "silu",
        "sign lost",
        "exp over 1 + exp",
        "correctly rounded exp",
        "platform's exp",
    ),
    "combine_shared": (
        "shared expert first",
        "shared expert after the residual",
        "gate not applied",
        "shared expert left out",
        "gate times ffn too",
        "gate of the first row for all",
        "ranks descending",
        "fused",
        "starts from the first term",
        "probabilities left out",
        "results flushed",
    ),
}


def shared_gate(x: Array, fault: Fault = None) -> Array:
    """Contract 1.9: the sigmoid."""
    if fault == "not squashed":
        return x.copy()
    exp = exponential(fault)
    if fault == "exp over 1 + exp":
        e = each(exp, x)
        return e / (F(1.0) + e)
    out = F(1.0) / (F(1.0) + each(exp, x if fault == "sign lost" else -x))
    return x * out if fault == "silu" else out


def combine_shared(
    ores: Array, down: Array, probs: Array, gs: Array, sh: Array, fault: Fault = None
) -> Array:
    """Contract 2: chosen experts in rank order, the shared one, then the residual."""
    gate = gs[:1] if fault == "gate of the first row for all" else gs
    weights = [probs[:, rank, None] for rank in range(probs.shape[1])]
    pairs = [(weight, down[:, rank]) for rank, weight in enumerate(weights)]
    if fault == "probabilities left out":
        pairs = [(F(1.0), rows) for _, rows in pairs]
    if fault == "ranks descending":
        pairs = pairs[::-1]
    shared = (F(1.0) if fault == "gate not applied" else gate, sh)
    late = fault in ("shared expert after the residual", "shared expert left out")
    if fault == "shared expert first":
        pairs = [shared, *pairs]
    elif fault == "gate times ffn too":
        return ores + gate * (_summed(pairs, fault) + sh)
    elif not late:
        pairs = [*pairs, shared]
    out = ores + _summed(pairs, fault)
    if fault == "shared expert after the residual":
        out = out + gate * sh
    return flush(out) if fault == "results flushed" else out


def _summed(pairs: list[tuple[Array | F, Array]], fault: Fault) -> Array:
    """The products one after the other, from +0.0."""
    total = F(0.0)
    for at, (weight, rows) in enumerate(pairs):
        if fault == "fused":
            total = fused(weight, rows, total)
        elif fault == "starts from the first term" and at == 0:
            total = weight * rows
        else:
            total = total + weight * rows
    return total
