"""Which op of the contract is which sum, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from parity.errors import InputError
from parity.order.adapters.called import CalledOp
from parity.order.own.asked import Asked, Launch
from parity.order.own.carried import CarriedOp
from parity.order.own.denominators import router_softmax
from parity.order.own.keys import attention_f32_l, attention_int8_l
from parity.order.own.norms import headnorm, norm_tree, rmsnorm
from parity.order.own.products import (
    combine,
    combine_shared,
    delta_mem,
    delta_o,
    expert_f32_matvec,
    f32_matvec,
    router_tree,
)
from parity.order.own.roots import l2norm
from parity.order.own.softmax import attention_f32
from parity.order.own.stored import attention_int8, expert_matvec, q4_matvec

OwnOp = CalledOp | CarriedOp
OWN: Mapping[str, Callable[[Asked, Launch], OwnOp]] = {
    "rmsnorm": rmsnorm,
    "headnorm": headnorm,
    "norm_tree": norm_tree,
    "l2norm": l2norm,
    "q4_matvec": q4_matvec,
    "f32_matvec": f32_matvec,
    "router_tree": router_tree,
    "expert_matvec": expert_matvec,
    "expert_f32_matvec": expert_f32_matvec,
    "attention_int8": attention_int8,
    "attention_f32": attention_f32,
    "combine": combine,
    "combine_shared": combine_shared,
    "delta_mem": delta_mem,
    "delta_o": delta_o,
    "router_softmax": router_softmax,
    "attention_f32_l": attention_f32_l,
    "attention_int8_l": attention_int8_l,
}

# The variants that each op takes (contract 5); an engine's others do nothing in it.
_Q4 = {"fma", "split_k", "unpaired", "zero_point"}
_EXPONENTIALS = {"libm_exp", "exp_via_double"}
_KEYS = {"two_pass", "split_keys", *_EXPONENTIALS}
TAKES: Mapping[str, Set[str]] = {
    "rmsnorm": {"rsqrt"},
    "headnorm": {"rsqrt"},
    "norm_tree": {"norm_tree", "rsqrt"},
    "l2norm": frozenset(),
    "q4_matvec": _Q4,
    "f32_matvec": {"fma"},
    "router_tree": {"router_tree"},
    "expert_matvec": {"scale_assoc", "fold_p"},
    "expert_f32_matvec": {"fma"},
    "attention_int8": _KEYS,
    "attention_f32": _KEYS,
    "combine": {"fold_p"},
    "combine_shared": {"fold_p"},
    "delta_mem": frozenset(),
    "delta_o": frozenset(),
    "router_softmax": _EXPONENTIALS,
    "attention_f32_l": _KEYS,
    "attention_int8_l": _KEYS,
}


def make_own(asked: Asked, launch: Launch) -> OwnOp:
    """The op of ``asked``, run by ``launch``. InputError for a variant that it does not take."""
    op = asked.name.partition(".")[2]
    foreign = sorted(asked.variants - TAKES[op])
    if foreign:
        known = ", ".join(sorted(TAKES[op])) or "none"
        raise InputError(f"{asked.name} takes no variant {foreign[0]}", f"it takes: {known}")
    return OWN[op](asked, launch)
