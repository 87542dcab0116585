"""Named inputs for every op: chosen boundary cases first, then seeded random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tests.oracle import inputs_f32, inputs_heads, inputs_products, inputs_rows, inputs_shared
from tests.oracle.values import NON_FINITE, Case, normal

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
    "shared_gate": inputs_shared.shared_gate,
    "combine_shared": inputs_shared.combine_shared,
    "norm_tree": inputs_rows.norm_tree,
    "router_tree": inputs_products.f32_matvec,
    "embed_f32": inputs_f32.embed_f32,
    "expert_f32_matvec": inputs_f32.expert_f32_matvec,
    "attention_f32": inputs_f32.attention_f32,
}
OPS = tuple(_TABLES)


def cases(op_name: str) -> Iterator[Case]:
    """(name in words, inputs of the op) for each case; the arrays are fresh at every call."""
    return _TABLES[op_name]()


def variant_cases(op_name: str) -> Iterator[Case]:
    """The same cases for an op with variants: expert_matvec gets probabilities f32[M, k] too."""
    for name, args in cases(op_name):
        if op_name == "expert_matvec":
            probs = np.abs(normal(f"{name} probs", *args[2].shape, size=0.4))
            yield name, (*args, probs)
        else:
            yield name, args


def is_non_finite(case_name: str) -> bool:
    """Whether the case is labelled as one that may produce NaN (contract 1.10)."""
    return case_name.startswith(NON_FINITE)
