"""Tiers and variants: the named departures of contract section 5, and which go together."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from parity.errors import InputError

# In the order of the contract; bit i of an engine's mask stands for VARIANTS[i].
VARIANTS = (
    *("rsqrt", "norm_tree", "fma", "split_k", "unpaired", "libm_exp", "libm_sincos"),
    *("exp_via_double", "two_pass", "router_tree", "scale_assoc", "fold_p", "div_by_inverse"),
    *("split_keys", "zero_point"),
)
TIERS = {
    "exact": frozenset[str](),
    "fast": frozenset(VARIANTS) - {"exp_via_double", "div_by_inverse"},
}
EXCLUSIVE = (("libm_exp", "exp_via_double"),)
_ROOTS = frozenset({"nrm", "knorm", "qrope", "gn", "fnrm", "final_normed"})
_PRODUCTS = frozenset(
    {
        *("kraw", "v", "vs", "qrope", "gated", "qkv", "z", "ores", "gate", "up", "down"),
        *("sh", "logits"),
    }
)
_EXPONENTIALS = frozenset(
    {
        *("attn", "gated", "conv", "beta", "g", "gn", "topk", "topp", "act", "gs", "sh"),
    }
)
# Fields that a variant's op may give other bytes on the same inputs, by the contract's sections: a
# difference born in another field has another cause. Not every model has every one of them.
ACTS_ON = {
    "rsqrt": _ROOTS,
    "norm_tree": _ROOTS,
    "fma": _PRODUCTS | {"beta", "g", "rlogits", "gs"},
    "split_k": _PRODUCTS,
    "unpaired": _PRODUCTS,
    "libm_exp": _EXPONENTIALS,
    "libm_sincos": frozenset({"k", "ks", "qrope"}),
    "exp_via_double": _EXPONENTIALS,
    "two_pass": frozenset({"attn"}),
    "router_tree": frozenset({"rlogits"}),
    "scale_assoc": frozenset({"gate", "up", "down"}),
    "fold_p": frozenset({"down", "x"}),
    "div_by_inverse": frozenset({"k", "v", "attn", "gate", "up", "down"}),
    "split_keys": frozenset({"attn"}),
    "zero_point": _PRODUCTS,
}


def resolve(tier: str, plus: Iterable[str], minus: Iterable[str], where: str) -> frozenset[str]:
    """The variants of ``tier`` with ``plus`` added and ``minus`` taken out.

    Raises InputError naming ``where`` for an unknown name, for one to take out that is not in, and
    for two that exclude each other.
    """
    if tier not in TIERS:
        raise InputError(f"{where}: no tier {tier!r}", f"tiers: {', '.join(TIERS)}")
    chosen = set(TIERS[tier])
    for name in sorted(minus):
        _known(name, where)
        if name not in chosen:
            raise InputError(f"{where}: tier {tier} has no {name} to take out", "leave it out")
        chosen.discard(name)
    for name in sorted(plus):
        _known(name, where)
        chosen.add(name)
    for pair in EXCLUSIVE:
        if chosen.issuperset(pair):
            raise InputError(
                f"{where}: {pair[0]} and {pair[1]} exclude each other",
                f"take one out: {where}-{pair[0]}" if pair[0] in TIERS[tier] else "name one",
            )
    return frozenset(chosen)


def variant_mask(names: Collection[str]) -> int:
    """The bits of ``names``, as ops and kernels take them."""
    return sum(1 << VARIANTS.index(name) for name in names)


def _known(name: str, where: str) -> None:
    if name in VARIANTS:
        return
    near = difflib.get_close_matches(name, VARIANTS, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InputError(f"{where}: no variant {name!r}", f"{hint}variants: {', '.join(VARIANTS)}")
