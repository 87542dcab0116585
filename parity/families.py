"""Fields of each model family: which are dumped, their dtype and shape (contract section 2)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from itertools import chain

from parity.dump import TensorType
from parity.errors import InputError, ParityBug
from parity.model.config import MODULES, ModelConfig

_Typed = tuple[str, tuple[int, ...]]

_DEFAULT = ("nrm", "kraw", "knorm", "k", "ks", "v", "vs", "qrope", "attn", "ores", "x")
_GATED = ("nrm", "kraw", "knorm", "k", "v", "qrope", "attn", "gated", "ores", "x")
_GDN = (
    *("nrm", "qkv", "z", "conv", "hist", "qn", "kn", "beta", "g", "s", "o", "gn"),
    *("ores", "x"),
)
_FINAL = ("final_normed", "logits")
_SCALES = ("ks", "vs")  # exist with an int8 KV cache only
_ROUTER = ("rlogits", "topk", "topp")  # exist with experts only
_SHARED = ("gs", "sh")  # exist with a shared expert only
_WIDTHS = ("gate", "up", "act", "down")  # their shape is the layer's own: experts or dense
# Optional groups, added by --fields +NAME.
_GROUPS = {
    "ffn": ("fnrm", *_ROUTER, *_WIDTHS, *_SHARED),
    "s": ("s",),
}
BEFORE = "x<"  # the x of the layer before, at layer 0 the token's embedding
# What the op of a field reads: fields of the same layer and position; BEFORE; "k^" all earlier rows
# of the layer's K or V, "s^" and "hist^" what the position before left of them.
_KV = ("k^", "ks^", "v^", "vs^")
_FEEDS = {
    "nrm": (BEFORE,),
    "kraw": ("nrm",),
    "knorm": ("kraw",),
    "k": ("knorm",),
    "ks": ("knorm",),
    "v": ("nrm",),
    "vs": ("nrm",),
    "qrope": ("nrm",),
    "attn": ("qrope", "k", "ks", "v", "vs", *_KV),
    "gated": ("attn", "nrm"),
    "qkv": ("nrm",),
    "z": ("nrm",),
    "conv": ("qkv", "hist^"),
    "hist": ("qkv", "hist^"),
    "qn": ("conv",),
    "kn": ("conv",),
    "beta": ("nrm",),
    "g": ("nrm",),
    "s": ("kn", "conv", "beta", "g", "s^"),
    "o": ("qn", "kn", "conv", "beta", "g", "s^"),
    "gn": ("o", "z"),
    "ores": ("attn", "gated", "gn", BEFORE),
    "fnrm": ("ores",),
    "rlogits": ("fnrm",),
    "topk": ("rlogits",),
    "topp": ("rlogits",),
    "gate": ("fnrm", "topk"),
    "up": ("fnrm", "topk"),
    "act": ("gate", "up"),
    "down": ("act", "topk"),
    "gs": ("fnrm",),
    "sh": ("fnrm",),
    "x": ("ores", "topp", "down", "gs", "sh"),
    "final_normed": (BEFORE,),
    "logits": ("final_normed",),
}
# What a variant's op reads beside it (contract 5).
_VARIANT_FEEDS = {("fold_p", "down"): ("topp",)}


def dumped_fields(config: ModelConfig, asked: Sequence[str] = ()) -> tuple[str, ...]:
    """Fields a model dumps: its family's own, plus the groups or single fields in ``asked``.

    A model of the family "modules" has its own names alone, and dumps all of them.
    """
    if config.family == MODULES:
        return _own_fields(config, asked)
    optional = {field for group in _GROUPS.values() for field in group}
    extra: list[str] = []
    for name in asked:
        if name in _GROUPS:
            extra += _GROUPS[name]
        elif name in optional:
            extra.append(name)
        else:
            known = [*_GROUPS, *sorted(optional - set(_GROUPS))]
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean +{near[0]}? " if near else ""
            raise InputError(f"unknown field {name!r}", f"{hint}known: +{', +'.join(known)}")
    absent: tuple[str, ...] = _SCALES if config.kv == "f32" else ()
    absent += () if config.experts else _ROUTER
    absent += () if config.shared_inter else _SHARED
    if config.family == "hybrid":
        own = dict.fromkeys((*_GATED, *(field for field in _GDN if field != "s")))
    else:
        own, absent = dict.fromkeys(_DEFAULT), (*absent, "s")
    fields = (*own, *(field for field in dict.fromkeys(extra) if field not in own), *_FINAL)
    return tuple(field for field in fields if field not in absent)


def _own_fields(config: ModelConfig, asked: Sequence[str]) -> tuple[str, ...]:
    fields = tuple(dict.fromkeys(field for _, field in config.own_keys))
    unknown = [name for name in asked if name not in fields]
    if unknown:
        raise InputError(
            f"unknown field {unknown[0]!r}: {config.name} has names of its own",
            "leave --fields out",
        )
    return fields


def every_field(config: ModelConfig) -> tuple[str, ...]:
    """All fields a model can dump, the optional ones too."""
    return dumped_fields(config, () if config.family == MODULES else tuple(_GROUPS))


def layer_fields(config: ModelConfig, layer: int, fields: Sequence[str]) -> tuple[str, ...]:
    """Of ``fields``, those that ``layer`` has: a hybrid's two kinds of layer differ, and so do a
    layer with experts and a dense one."""
    if config.family == MODULES:
        own = {field for at, field in config.own_keys if at == layer}
        return tuple(field for field in fields if field in own)
    absent = _FINAL if config.has_experts(layer) else (*_FINAL, *_ROUTER, *_SHARED)
    if config.family == "hybrid":
        kind = _GDN if config.is_gdn(layer) else _GATED
        kind = (*kind, *_GROUPS["ffn"])
        return tuple(field for field in fields if field in kind and field not in absent)
    return tuple(field for field in fields if field not in absent)


def count_keys(config: ModelConfig, fields: Sequence[str]) -> int:
    """Keys of one token."""
    if config.family == MODULES:
        return sum(field in fields for _, field in config.own_keys)
    inner = sum(len(layer_fields(config, layer, fields)) for layer in range(config.layers))
    return inner + len(_FINAL)


# Which op makes a field, as a cause is named: the op and its contract section.
_OPS = {
    "nrm": "RMSNorm (contract 1.1)",
    "kraw": "K projection (contract 1.3)",
    "knorm": "head norm of K (contract 1.2)",
    "k": "RoPE and storage of K (contract 1.7, 1.6)",
    "ks": "RoPE and scale of K (contract 1.7, 1.6)",
    "v": "V projection and storage (contract 1.3, 1.6)",
    "vs": "V projection and scale (contract 1.3, 1.6)",
    "qrope": "Q projection, head norm and RoPE (contract 1.3, 1.2, 1.7)",
    "attn": "attention (contract 1.8)",
    "gated": "output gate (contract 3.1)",
    "qkv": "QKV projection (contract 3.2)",
    "z": "Z projection (contract 3.2)",
    "conv": "convolution (contract 3.2)",
    "hist": "history of the convolution (contract 3.2)",
    "qn": "norm of q (contract 3.2)",
    "kn": "norm of k (contract 3.2)",
    "beta": "beta (contract 3.2)",
    "g": "decay (contract 3.2)",
    "s": "state of the delta rule (contract 3.2)",
    "o": "delta rule (contract 3.2)",
    "gn": "gated norm (contract 3.2)",
    "ores": "output projection and residual (contract 2)",
    "fnrm": "RMSNorm of the FFN (contract 1.1)",
    "rlogits": "router (contract 1.5)",
    "topk": "top-k (contract 2)",
    "topp": "router probabilities (contract 2)",
    "gate": "gate projection (contract 2)",
    "up": "up projection (contract 2)",
    "act": "swiglu (contract 1.9)",
    "down": "down projection (contract 2)",
    "gs": "gate of the shared expert (contract 2)",
    "sh": "shared expert (contract 2)",
    "x": "FFN and residual (contract 2)",
    "final_normed": "final RMSNorm (contract 1.1)",
    "logits": "lm_head (contract 1.3)",
}


def field_op(field: str) -> str:
    """The op that makes ``field``, with its contract section; the field itself when unknown."""
    return _OPS.get(field, field)


def feeding_fields(field: str, variants: Collection[str] = ()) -> tuple[str, ...]:
    """What the op of ``field`` reads, names with ``<`` or ``^`` as _FEEDS says; empty when unknown.

    ``variants``: those that run on either side.
    """
    more = (_VARIANT_FEEDS.get((variant, field), ()) for variant in variants)
    return (*_FEEDS.get(field, ()), *chain.from_iterable(more))


def field_type(config: ModelConfig, field: str, layer: int | None = None) -> TensorType:
    """dtype and shape of a field (contract section 2, table).

    ``layer`` is needed where a model with experts has dense layers: they differ in _WIDTHS.
    """
    if field in _WIDTHS:
        return TensorType("f32", _ffn_shape(config, field, layer))
    if field not in _SHAPES:
        raise ParityBug(f"no shape is known for field {field!r}")
    dtype, shape = _SHAPES[field](config)
    if config.kv == "f32" and field in ("k", "v"):
        dtype = "f32"
    return TensorType(dtype, shape)


def _ffn_shape(config: ModelConfig, field: str, layer: int | None) -> tuple[int, ...]:
    """(k, width) with experts, else (width,)."""
    if layer is None:
        if config.dense_layers:
            raise ParityBug(f"the shape of {field} of {config.name} depends on the layer")
        layer = 0
    width = config.hidden if field == "down" else config.ffn_inter(layer)
    return (config.top_k, width) if config.has_experts(layer) else (width,)


def _row(config: ModelConfig) -> _Typed:
    return "f32", (config.hidden,)


def _queries(config: ModelConfig) -> _Typed:
    return "f32", (config.n_q, config.head_dim)


def _keys(config: ModelConfig) -> _Typed:
    return "f32", (config.n_kv, config.head_dim)


def _cached(config: ModelConfig) -> _Typed:
    return "int8", (config.n_kv, config.head_dim)


def _scales(config: ModelConfig) -> _Typed:
    return "f32", (config.n_kv,)


def _key_heads(config: ModelConfig) -> _Typed:
    return "f32", (config.gdn[0], config.gdn[2])


def _value_heads(config: ModelConfig) -> _Typed:
    return "f32", (config.gdn[1], config.gdn[3])


def _per_value_head(config: ModelConfig) -> _Typed:
    return "f32", (config.gdn[1],)


def _channels(config: ModelConfig) -> _Typed:
    return "f32", (config.conv_dim,)


_SHAPES: dict[str, Callable[[ModelConfig], _Typed]] = {
    **dict.fromkeys(("nrm", "ores", "x", "final_normed", "fnrm", "sh"), _row),
    **dict.fromkeys(("kraw", "knorm"), _keys),
    **dict.fromkeys(("k", "v"), _cached),
    **dict.fromkeys(("ks", "vs"), _scales),
    **dict.fromkeys(("qrope", "attn", "gated"), _queries),
    **dict.fromkeys(("qkv", "conv"), _channels),
    **dict.fromkeys(("z", "o", "gn"), _value_heads),
    **dict.fromkeys(("qn", "kn"), _key_heads),
    **dict.fromkeys(("beta", "g"), _per_value_head),
    "hist": lambda config: ("f32", (3, config.conv_dim)),
    "s": lambda config: ("f32", config.gdn[1:]),
    "rlogits": lambda config: ("f32", (config.experts,)),
    "topk": lambda config: ("int32", (config.top_k,)),
    "topp": lambda config: ("f32", (config.top_k,)),
    "gs": lambda config: ("f32", (1,)),
    "logits": lambda config: ("f32", (config.vocab,)),
}
