"""Slow scalar twins of every variant of contract 5, alone and combined.

Written like scalar.py and apart from it: one np.float32 operation per statement. ``run`` takes an
op, the inputs of its exact form and the names of the variants asked for; ``expert_matvec`` has the
probabilities f32[M, k] as one input more, which fold_p alone reads. norm_tree and router_tree are
ops of their own: the order of a sum is theirs, the other variants are names as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from tests.oracle import variants_heads as heads
from tests.oracle import variants_products as products
from tests.oracle.variants_shared import Names

Array = np.ndarray[Any, np.dtype[Any]]
# What each op can be asked for.
OF_OP: dict[str, tuple[str, ...]] = {
    "rmsnorm": ("rsqrt",),
    "headnorm": ("rsqrt",),
    "norm_tree": ("rsqrt",),
    "q4_matvec": ("fma", "split_k", "unpaired", "zero_point"),
    "f32_matvec": ("fma",),
    "expert_f32_matvec": ("fma",),
    "rope": ("libm_sincos",),
    "quant8": ("div_by_inverse",),
    "quant16": ("div_by_inverse",),
    "attention_int8": ("libm_exp", "exp_via_double", "two_pass", "split_keys"),
    "attention_f32": ("libm_exp", "exp_via_double", "two_pass", "split_keys"),
    "swiglu": ("libm_exp", "exp_via_double"),
    "router_topk": ("libm_exp", "exp_via_double"),
    "expert_matvec": ("scale_assoc", "fold_p"),
    "combine": ("fold_p",),
    "shared_gate": ("libm_exp", "exp_via_double"),
    "combine_shared": ("fold_p",),
}


def sets_of(op_name: str) -> Iterator[Names]:
    """Every non-empty set of an op's variants that may stand together."""
    names = OF_OP.get(op_name, ())
    for size in range(1, len(names) + 1):
        for chosen in combinations(names, size):
            if not {"libm_exp", "exp_via_double"} <= set(chosen):
                yield frozenset(chosen)


_WRITTEN = (
    *(products.rmsnorm, products.headnorm, products.norm_tree, products.q4_matvec),
    *(products.f32_matvec, products.router_tree, products.expert_f32_matvec),
    *(products.expert_matvec, products.combine, heads.quant8, heads.quant16, heads.rope),
    *(heads.attention_int8, heads.attention_f32, heads.swiglu, heads.router_topk),
    *(heads.shared_gate, products.combine_shared),
)
OPS: dict[str, Any] = {op.__name__: op for op in _WRITTEN}


def run(op_name: str, args: tuple[Any, ...], names: Names = frozenset()) -> tuple[Array, ...]:
    """The op's outputs as a tuple, with these variants."""
    unknown = names - set(OF_OP.get(op_name, ()))
    if unknown:
        raise KeyError(f"{op_name} has no variant {sorted(unknown)}")
    with np.errstate(all="ignore"):
        result = OPS[op_name](*args, names)
    return result if isinstance(result, tuple) else (result,)
