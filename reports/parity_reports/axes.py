"""What the axes of a field are called (contract 2 and 3), for headings of element tables."""

from __future__ import annotations

from parity.tree import Elements
from parity_reports.values import parse_key

_HEADS = ("kraw", "knorm", "k", "v", "qrope", "attn", "gated", "z", "o", "gn", "qn", "kn")
_AXES: dict[tuple[str, int], tuple[str, ...]] = {(name, 2): ("head", "dim") for name in _HEADS}
_AXES |= {(name, 1): ("head",) for name in ("ks", "vs", "beta", "g")}
_AXES |= {(name, 1): ("dim",) for name in ("nrm", "ores", "x", "fnrm", "sh", "final_normed")}
_AXES |= {("logits", 1): ("token",), ("rlogits", 1): ("expert",)}
_AXES |= {(name, 1): ("rank",) for name in ("topk", "topp")}


def axis_names(elements: Elements) -> tuple[str, ...]:
    """One name for each dimension; ``element`` or ``i, j, ...`` where the field names none."""
    rank = len(elements.rows[0].index) if elements.rows else 0
    known = _known(elements, rank)
    return known or (("element",) if rank == 1 else tuple("ijklmnop"[:rank]))


def leading_axis(elements: Elements) -> str:
    """What ``groups`` counts by: the name of the first dimension, else ``index``."""
    rank = len(elements.rows[0].index) if elements.rows else 0
    known = _known(elements, rank)
    return known[0] if known else "index"


def _known(elements: Elements, rank: int) -> tuple[str, ...] | None:
    key = parse_key(elements.key)
    return None if key is None else _AXES.get((key.field, rank))
