"""Named inputs for every op: chosen boundary cases first, then seeded random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.oracle import inputs_heads, inputs_products, inputs_rows
from tests.oracle.values import NON_FINITE, Case

_TABLES: dict[str, Callable[[], Iterator[Case]]] = {
    "embed": inputs_products.embed,
    "rmsnorm": inputs_rows.rmsnorm,
    "headnorm": inputs_rows.headnorm,
    "q4_matvec": inputs_products.q4_matvec,
    "f32_matvec": inputs_products.f32_matvec,
    "rope": inputs_rows.rope,
    "quant8": inputs_rows.quant8,
    "quant16": inputs_rows.quant16,
    "attention_int8": inputs_heads.attention_int8,
    "add": inputs_rows.add,
    "swiglu": inputs_rows.swiglu,
    "router_topk": inputs_heads.router_topk,
    "expert_matvec": inputs_products.expert_matvec,
    "combine": inputs_products.combine,
}
OPS = tuple(_TABLES)


def cases(op_name: str) -> Iterator[Case]:
    """(name in words, inputs of the op) for each case; the arrays are fresh at every call."""
    return _TABLES[op_name]()


def is_non_finite(case_name: str) -> bool:
    """Whether the case is labelled as one that may produce NaN (contract 1.10)."""
    return case_name.startswith(NON_FINITE)
