"""Fields of each model family: which are dumped, their dtype and shape (contract section 2)."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from parity.dump import TensorType
from parity.errors import InputError
from parity.model.config import ModelConfig

_DEFAULT = ("nrm", "kraw", "knorm", "k", "ks", "v", "vs", "qrope", "attn", "ores", "x")
_FINAL = ("final_normed", "logits")
# Optional groups, added by --fields +NAME.
_GROUPS = {
    "ffn": ("fnrm", "rlogits", "topk", "topp", "gate", "up", "act", "down"),
}
# Which fields of the same layer, the layer before or the state feed a field: what to show beside
# the first differing key. "x<" is the x of the layer before (or the embedding).
_FEEDS = {
    "nrm": ("x<",),
    "kraw": ("nrm",),
    "knorm": ("kraw",),
    "k": ("knorm",),
    "ks": ("knorm",),
    "v": ("nrm",),
    "vs": ("nrm",),
    "qrope": ("nrm",),
    "attn": ("qrope", "k", "ks", "v", "vs"),
    "ores": ("attn", "x<"),
    "fnrm": ("ores",),
    "rlogits": ("fnrm",),
    "topk": ("rlogits",),
    "topp": ("rlogits",),
    "gate": ("fnrm", "topk"),
    "up": ("fnrm", "topk"),
    "act": ("gate", "up"),
    "down": ("act", "topk"),
    "x": ("ores",),
    "final_normed": ("x<",),
    "logits": ("final_normed",),
}


def dumped_fields(asked: Sequence[str] = ()) -> tuple[str, ...]:
    """Fields to dump: the family's own, plus the groups or single fields in ``asked``."""
    optional = {field for group in _GROUPS.values() for field in group}
    extra: list[str] = []
    for name in asked:
        if name in _GROUPS:
            extra += _GROUPS[name]
        elif name in optional:
            extra.append(name)
        else:
            known = [*_GROUPS, *sorted(optional)]
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean +{near[0]}? " if near else ""
            raise InputError(f"unknown field {name!r}", f"{hint}known: +{', +'.join(known)}")
    return (*_DEFAULT, *dict.fromkeys(extra), *_FINAL)


def feeding_fields(field: str) -> tuple[str, ...]:
    """Fields that feed ``field``; ``x<`` stands for the layer before. Empty when unknown."""
    return _FEEDS.get(field, ())


def field_type(config: ModelConfig, field: str) -> TensorType:
    """dtype and shape of a field (contract section 2, table)."""
    keys = (config.n_kv, config.head_dim)
    ranked = config.top_k
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        **dict.fromkeys(("nrm", "ores", "x", "final_normed", "fnrm"), ("f32", (config.hidden,))),
        **dict.fromkeys(("kraw", "knorm"), ("f32", keys)),
        **dict.fromkeys(("k", "v"), ("int8", keys)),
        **dict.fromkeys(("ks", "vs"), ("f32", (config.n_kv,))),
        **dict.fromkeys(("qrope", "attn"), ("f32", (config.n_q, config.head_dim))),
        **dict.fromkeys(("gate", "up", "act"), ("f32", (ranked, config.inter))),
        "rlogits": ("f32", (config.experts,)),
        "topk": ("int32", (ranked,)),
        "topp": ("f32", (ranked,)),
        "down": ("f32", (ranked, config.hidden)),
        "logits": ("f32", (config.vocab,)),
    }
    dtype, shape = shapes[field]
    return TensorType(dtype, shape)
