"""A model's sizes and constants from config.json, by architecture.

Whatever the keys say that the contract has no arithmetic for is refused by name: another
activation, biases, a sliding window, another rope type or scaling, quantised checkpoints. Keys that
no arithmetic hangs on are not looked at, as in the library that writes the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parity.errors import InputError
from parity.model.config import ModelConfig
from parity.model.folder.settings import Settings


@dataclass(frozen=True)
class Architecture:
    """What config.json's ``architectures`` tells of the files.

    ``family``: as of ModelConfig. ``experts``: the class can have them. ``inner``: the language
    model's settings stand in text_config. ``interleaved``: Qwen3-Next's in_proj_qkvz and
    in_proj_ba. ``left_out``: beginnings of the names of tensors that the language model lacks.
    """

    name: str
    family: str
    experts: bool = False
    inner: bool = False
    interleaved: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def offset_norms(self) -> bool:
        """Whether norms are stored as an offset from 1 (contract 1.1)."""
        return self.family == "hybrid"


_MTP = ("mtp.",)
_EXTRA = (*_MTP, "model.visual.", "visual.")
ARCHITECTURES = {
    made.name: made
    for made in (
        Architecture("Qwen3ForCausalLM", "dense"),
        Architecture("Qwen3MoeForCausalLM", "moe", experts=True),
        Architecture(
            "Qwen3NextForCausalLM", "hybrid", experts=True, interleaved=True, left_out=_MTP
        ),
        Architecture("Qwen3_5ForCausalLM", "hybrid", left_out=_EXTRA),
        Architecture("Qwen3_5ForConditionalGeneration", "hybrid", inner=True, left_out=_EXTRA),
        Architecture("Qwen3_5MoeForCausalLM", "hybrid", experts=True, left_out=_EXTRA),
        Architecture(
            *("Qwen3_5MoeForConditionalGeneration", "hybrid"),
            experts=True,
            inner=True,
            left_out=_EXTRA,
        ),
    )
}
# Interval of full attention and rotated share of a head where a hybrid's file says nothing.
_INTERVAL, _HYBRID_SHARE = 4, 0.25
_MOST_LAYERS = 10_000  # lists of layers are made before any file tells that they are there
_ROPE_KEYS = frozenset(
    ("rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section")
) | {"mrope_interleaved"}


def read_config(outer: Settings) -> tuple[Architecture, ModelConfig]:
    """Architecture and sizes of a config.json; ``weights`` is "file", ``kv_storage`` not set.

    Raises InputError, naming the key, for what is missing, malformed or not supported.
    """
    made = _architecture(outer)
    text = outer.inner("text_config") if made.inner else outer
    if text is None:
        outer.refuse("text_config", "is missing")
    for settings in (outer, text):
        if settings.get("quantization_config") is not None:
            settings.refuse(
                "quantization_config",
                "is there: the checkpoint is quantised",
                "give the folder of the unquantised model, or a GGUF file",
            )
    layers = text.size("num_hidden_layers", most=_MOST_LAYERS)
    _refuse_other_arithmetic(text)
    _check_kinds(made, text, layers)
    return made, ModelConfig(
        name=made.name,
        layers=layers,
        hidden=text.size("hidden_size"),
        **_heads(made, text),
        **_ffn(made, text, layers),
        **(_hybrid(text, layers) if made.family == "hybrid" else {}),
        vocab=text.size("vocab_size"),
        theta=_theta(text),
        eps=text.number("rms_norm_eps"),
        weights="file",
        context=text.size("max_position_embeddings"),
        tied=_tied(outer, text),
    )


def _architecture(outer: Settings) -> Architecture:
    named = outer.get("architectures")
    if not isinstance(named, list) or len(named) != 1 or not isinstance(named[0], str):
        outer.refuse("architectures", "does not name one architecture")
    if named[0] not in ARCHITECTURES:
        raise InputError(
            f"{outer.path}: the architecture {named[0]} is not supported",
            f"supported: {', '.join(ARCHITECTURES)}",
        )
    return ARCHITECTURES[named[0]]


def _refuse_other_arithmetic(text: Settings) -> None:
    text.only("hidden_act", "silu", "another activation than silu")
    text.only("attention_bias", False, "projections with a bias")
    text.only("use_sliding_window", False, "attention with a sliding window")
    text.only("attn_output_gate", True, "full attention without its gate")
    text.only("output_gate_type", "swish", "another gate of the gated norm")
    text.only("linear_conv_kernel_dim", 4, "another width of the convolution")


def _check_kinds(made: Architecture, text: Settings, layers: int) -> None:
    """layer_types, where it is there: one supported kind of attention a layer."""
    kinds = text.get("layer_types")
    if kinds is None:
        return
    if not isinstance(kinds, list) or not set(map(type, kinds)) <= {str}:
        text.refuse("layer_types", "is not a list of words")
    if len(kinds) != layers:
        text.refuse("layer_types", f"has {len(kinds)} entries for {layers} layers")
    known = {"full_attention", *(("linear_attention",) if made.family == "hybrid" else ())}
    others = sorted(set(kinds) - known)
    if others:
        text.refuse(
            "layer_types",
            f"has {others[0]!r}, which is not supported",
            f"parity runs {made.name} with {' and '.join(sorted(known))}",
        )


def _heads(made: Architecture, text: Settings) -> dict[str, Any]:
    n_q, n_kv = text.size("num_attention_heads"), text.size("num_key_value_heads")
    if n_q % n_kv:
        text.refuse("num_attention_heads", f"is {n_q}, no multiple of the {n_kv} of K and V")
    head_dim = text.size("head_dim")
    rope = _rope(text)
    hybrid = made.family == "hybrid"
    share = _said_once(rope, text, "partial_rotary_factor", _HYBRID_SHARE if hybrid else 1.0)
    if share > 1:
        rope.refuse("partial_rotary_factor", f"is {share}, more than a whole head")
    rot = int(head_dim * share)
    if not 0 < rot <= head_dim or rot % 2:
        rope.refuse("partial_rotary_factor", f"{share} of {head_dim} elements: {rot} rotate")
    if not hybrid and rot != head_dim:
        rope.refuse("partial_rotary_factor", f"is {share}: {made.name} rotates whole heads")
    return {"n_q": n_q, "n_kv": n_kv, "head_dim": head_dim, "rot": 0 if rot == head_dim else rot}


def _rope(text: Settings) -> Settings:
    """The rope settings: rope_parameters, or rope_scaling in files of before. What it holds beside
    the plain rotation is refused."""
    found = [text.inner(key) for key in ("rope_parameters", "rope_scaling")]
    given = [settings for settings in found if settings is not None]
    if len(given) > 1 and given[0].values != given[1].values:
        text.refuse("rope_scaling", "and rope_parameters say different things")
    rope = given[0] if given else Settings(text.path, {}, f"{text.at}rope_parameters.")
    for key in ("rope_type", "type"):
        kind = rope.get(key)
        if kind not in (None, "default", "mrope"):
            rope.refuse(key, f"is {kind!r}: a rope scaling", "parity runs the default rope only")
    for key in rope.values:
        if key not in _ROPE_KEYS:
            rope.refuse(key, "is not known: another rope", "parity runs the default rope only")
    return rope


def _theta(text: Settings) -> float:
    rope = _rope(text)
    theta = _said_once(rope, text, "rope_theta")
    if theta < 1:  # no file has one; its powers would leave the f32 numbers
        rope.refuse("rope_theta", f"is {theta}, not a number from 1 up")
    return theta


def _said_once(rope: Settings, text: Settings, key: str, default: float | None = None) -> float:
    """A number of the rope settings, or beside them in files of before; two that differ are
    refused."""
    if rope.get(key) is None:
        return text.number(key, default)
    found = rope.number(key)
    if text.number(key, found) != found:
        text.refuse(key, f"is {text.get(key)}, {found} in {rope.at[:-1]}")
    return found


def _ffn(made: Architecture, text: Settings, layers: int) -> dict[str, Any]:
    """Experts, the layers without them, and widths. A model all of whose layers are dense has no
    experts at all."""
    experts = _expert_count(text) if made.experts else 0
    step = text.size_or("decoder_sparse_step", 1)
    named = text.layers("mlp_only_layers", layers)
    dense = [at for at in range(layers) if at in named or (at + 1) % step] if experts else []
    if not experts or len(dense) == layers:
        none: dict[str, Any] = {"inter": text.size("intermediate_size"), "experts": 0, "top_k": 0}
        return {**none, "family": "hybrid" if made.family == "hybrid" else "dense"}
    top_k = text.size("num_experts_per_tok")
    if top_k > experts:
        text.refuse("num_experts_per_tok", f"is {top_k}, of {experts} experts")
    hybrid = made.family == "hybrid"
    return {
        "family": made.family,
        "experts": experts,
        "top_k": top_k,
        "inter": text.size("moe_intermediate_size"),
        "shared_inter": text.size("shared_expert_intermediate_size") if hybrid else 0,
        "norm_topk_prob": _norm_topk_prob(made, text),
        "dense_layers": tuple(dense),
        "dense_inter": text.size("intermediate_size") if dense else 0,
    }


def _expert_count(text: Settings) -> int:
    """Newer files of one architecture write the count under another name."""
    given = [key for key in ("num_experts", "num_local_experts") if text.get(key) is not None]
    counts = {text.size(key, least=0) for key in given}
    if len(counts) > 1:
        text.refuse("num_experts", f"is {text.get('num_experts')}, num_local_experts another count")
    return counts.pop() if counts else text.size("num_experts")


def _norm_topk_prob(made: Architecture, text: Settings) -> bool:
    """Qwen3.5 does not store it and always divides; a file that stores false is refused there."""
    if made.name.startswith("Qwen3_5"):
        text.only("norm_topk_prob", True, "the architecture always divides by the sum")
        return True
    return text.flag("norm_topk_prob", None)


def _hybrid(text: Settings, layers: int) -> dict[str, Any]:
    key_heads, value_heads = (text.size(f"linear_num_{kind}_heads") for kind in ("key", "value"))
    if value_heads % key_heads:
        text.refuse(
            "linear_num_value_heads", f"is {value_heads}, no multiple of {key_heads} key heads"
        )
    widths = [text.size(f"linear_{kind}_head_dim") for kind in ("key", "value")]
    kinds = text.get("layer_types")
    interval = text.size_or("full_attention_interval", _INTERVAL)
    by_rule = tuple(at for at in range(layers) if (at + 1) % interval == 0)
    found: dict[str, Any] = {"interval": interval, "full_layers": None}
    if kinds is not None:
        full = tuple(at for at, kind in enumerate(kinds) if kind == "full_attention")
        if full != by_rule:  # one model has one configuration, however its file says it
            found = {"interval": _INTERVAL, "full_layers": full}
    return {**found, "gdn": (key_heads, value_heads, *widths)}


def _tied(outer: Settings, text: Settings) -> bool:
    """The outer key decides; two that differ are refused, since readers differ about them."""
    given = {s.at: s.flag("tie_word_embeddings", False) for s in (outer, text) if _ties(s)}
    if len(set(given.values())) > 1:
        outer.refuse("tie_word_embeddings", f"and {text.at}tie_word_embeddings differ")
    return any(given.values())


def _ties(settings: Settings) -> bool:
    return settings.get("tie_word_embeddings") is not None
