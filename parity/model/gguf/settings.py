"""From a GGUF file's values to a model's configuration (contract 1.7, 1.11), and back.

What a value would change in the arithmetic and the contract does not have is refused by its name.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, NoReturn

import numpy as np

from parity.model.config import ModelConfig
from parity.model.gguf.names import FAMILIES, WITH_EXPERTS
from parity.model.gguf.reading import GgufFile
from parity.model.tokenizer import real_ids

CONV_TAPS = 4
INTERVAL = 4  # the format's default
OTHER_MODEL = "this model cannot be run exactly by this version"

# Values that decide the arithmetic, by what they must be to mean nothing: contract 1.7 and 2.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (0.0, 1.0),
    "rope.scale_linear": (0.0, 1.0),
    "attention.sliding_window": (0,),
    "attention.causal": (True,),
    "attention.scale": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "expert_gating_func": (1,),  # softmax
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
    "expert_weights_norm": (True,),  # llama.cpp does it whatever the file says
    "expert_weights_scale": (0.0, 1.0),
    "leading_dense_block_count": (0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "router_logit_softcapping": (0.0,),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
}
# Groups whose every value matters: one that is not known here is refused too.
_STRICT = ("rope.", "attention.", "ssm.")
_KNOWN = frozenset(
    (
        *("rope.freq_base", "rope.dimension_count", "rope.dimension_sections"),
        *("rope.scaling.original_context_length", "rope.scaling.finetuned"),
        *("attention.head_count", "attention.head_count_kv", "attention.key_length"),
        *("attention.value_length", "attention.layer_norm_rms_epsilon"),
        *("attention.recurrent_layers", "ssm.conv_kernel", "ssm.state_size", "ssm.inner_size"),
        *("ssm.group_count", "ssm.time_step_rank"),
    )
)


def architecture_of(file: GgufFile) -> str:
    """The architecture, one of FAMILIES; InputError for any other and for a part of a model."""
    found = file.values.get("general.architecture")
    if found not in FAMILIES:
        file.refuse(
            f"general.architecture is {found!r}, which is not supported",
            f"supported: {', '.join(FAMILIES)}",
        )
    if file.values.get("split.count", 0) not in (0, 1):
        file.refuse(
            f"one of {file.values['split.count']} parts of a model",
            "join them first: llama-gguf-split --merge",
        )
    return str(found)


def config_of(file: GgufFile, architecture: str) -> ModelConfig:
    """Sizes and constants; the storage of K and V is left to who knows the tensors' names.

    Raises InputError for a value that is missing, impossible, or not supported.
    """
    values = _Values(file, architecture)
    values.refuse_unsupported()
    family = FAMILIES[architecture]
    heads, head_dim = values.heads()
    vocab = values.vocab()
    layers = values.layers()
    recurrent = values.recurrent(layers) if family == "hybrid" else {}
    return ModelConfig(
        name=values.model_name(),
        layers=layers,
        hidden=values.size("embedding_length"),
        n_q=heads[0],
        n_kv=heads[1],
        head_dim=head_dim,
        vocab=vocab,
        theta=values.real("rope.freq_base", least=1.0),
        eps=values.real("attention.layer_norm_rms_epsilon", least=0.0),
        weights="file",
        family=family,
        context=values.size("context_length"),
        rot=values.rotated(head_dim, family),
        real_ids=values.real_ids(vocab),
        **values.ffn(architecture),
        **recurrent,
    )


class _Values:
    """The values of one architecture, each checked as it is asked for."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self.file, self.prefix = file, f"{architecture}."

    def get(self, key: str) -> Any:
        """The value, or None."""
        return self.file.values.get(self.prefix + key)

    def refuse_unsupported(self) -> None:
        """Refuse what would change the arithmetic in a way that the contract does not have."""
        for full, value in self.file.values.items():
            key = full.removeprefix(self.prefix)
            if key == full or key in _KNOWN:
                continue
            neutral = _NEUTRAL.get(key)
            if neutral is None and key.startswith(_STRICT):
                self.file.refuse(f"{full} is not supported", OTHER_MODEL)
            if neutral is not None and value not in neutral:
                self.file.refuse(f"{full} = {value!r} is not supported", OTHER_MODEL)

    def size(self, key: str, default: int | None = None) -> int:
        """A whole number from 1 up, the same for every layer where there is one a layer."""
        found = self.get(key)
        if found is None and default is not None:
            return default
        if isinstance(found, list) and found and all(one == found[0] for one in found):
            found = found[0]
        if type(found) is not int or found < 1:
            self._refuse(key, found)
        return int(found)

    def real(self, key: str, least: float) -> float:
        """A number above or at ``least``: the shortest decimal that is the stored f32, which is
        what a checkpoint's configuration says of it."""
        found = self.get(key)
        if type(found) is not float or not isfinite(found) or found < least:
            self._refuse(key, found)
        return float(str(np.float32(found)))

    def _refuse(self, key: str, found: Any) -> NoReturn:
        what = "is missing" if found is None else f"is {str(found)[:60]}"
        self.file.refuse(f"{self.prefix}{key} {what}")

    def model_name(self) -> str:
        """What the file calls the model, else its architecture."""
        found = self.file.values.get("general.name")
        named = isinstance(found, str) and found.isprintable() and found.strip()
        return str(found).strip() if named else self.prefix[:-1]

    def layers(self) -> int:
        """Layers that are run: without the blocks that predict further tokens."""
        blocks = self.size("block_count")
        ahead = self.get("nextn_predict_layers") or 0
        # A model has more tensors than layers: no list is made for a count that cannot be true.
        if type(ahead) is not int or not 0 <= ahead < blocks or blocks > len(self.file.tensors):
            self._refuse("block_count", f"{blocks}, {ahead} of them predict further tokens")
        return blocks - ahead

    def heads(self) -> tuple[tuple[int, int], int]:
        """Query heads and KV heads, and the width of a head."""
        n_q = self.size("attention.head_count")
        n_kv = self.size("attention.head_count_kv", n_q)
        if n_q % n_kv:
            self.file.refuse(f"{n_q} query heads are no multiple of {n_kv} KV heads")
        width = self.size("attention.key_length", max(1, self.size("embedding_length") // n_q))
        other = self.size("attention.value_length", width)
        if other != width:
            self.file.refuse(f"keys are {width} wide, values {other}: not supported", OTHER_MODEL)
        return (n_q, n_kv), width

    def rotated(self, head_dim: int, family: str) -> int:
        """Rotated elements of a head, 0 for all of them."""
        found = self.size("rope.dimension_count", head_dim)
        if found % 2 or found > head_dim or (found != head_dim and family != "hybrid"):
            self._refuse("rope.dimension_count", f"{found}, heads are {head_dim} wide")
        return 0 if found == head_dim else found

    def vocab(self) -> int:
        """Rows of the embedding, which every other count of ids must agree with."""
        embedding = self.file.tensors.get("token_embd.weight")
        if embedding is None:
            self.file.refuse("tensor token_embd.weight is missing")
        rows = embedding.shape[0]
        tokens = self.file.values.get("tokenizer.ggml.tokens")
        counts = {f"{self.prefix}vocab_size": self.size("vocab_size", rows)}
        if isinstance(tokens, list):
            counts["tokenizer.ggml.tokens"] = len(tokens)
        for what, count in counts.items():
            if count != rows:
                self.file.refuse(f"{what} has {count} ids, token_embd.weight {rows} rows")
        return rows

    def real_ids(self, vocab: int) -> int:
        """Ids before the trailing run of unused ones, 0 where there is none (contract 7)."""
        types = self.file.values.get("tokenizer.ggml.token_type")
        if types is None:
            return 0
        if not isinstance(types, list) or len(types) != vocab:
            self.file.refuse(f"tokenizer.ggml.token_type does not have {vocab} entries")
        real = real_ids(types)
        if not real:
            self.file.refuse("tokenizer.ggml.token_type: every id is unused")
        return 0 if real == vocab else real

    def ffn(self, architecture: str) -> dict[str, Any]:
        """Widths of the FFN, and how many experts."""
        if architecture not in WITH_EXPERTS:
            return {"inter": self.size("feed_forward_length"), "experts": 0, "top_k": 0}
        experts, top_k = self.size("expert_count"), self.size("expert_used_count")
        if top_k > experts:
            self.file.refuse(f"{top_k} of {experts} experts are to be used")
        found = {"inter": self._expert_width(), "experts": experts, "top_k": top_k}
        if FAMILIES[architecture] == "hybrid":
            found["shared_inter"] = self._shared_width()
        return found

    def _expert_width(self) -> int:
        return self.size("expert_feed_forward_length", self._rows("ffn_down_exps.weight", -1))

    def _shared_width(self) -> int:
        # Older qwen3next files do not tell the width: it is that of the tensor.
        key = "expert_shared_feed_forward_length"
        return self.size(key, self._rows("ffn_up_shexp.weight", 0))

    def _rows(self, tensor: str, axis: int) -> int | None:
        found = self.file.tensors.get(f"blk.0.{tensor}")
        return None if found is None else found.shape[axis]

    def recurrent(self, layers: int) -> dict[str, Any]:
        """Sizes of the Gated DeltaNet, and the layers that have full attention instead."""
        if self.size("ssm.conv_kernel") != CONV_TAPS:
            self._refuse("ssm.conv_kernel", f"{self.get('ssm.conv_kernel')}, {CONV_TAPS} expected")
        key_heads, value_heads = self.size("ssm.group_count"), self.size("ssm.time_step_rank")
        inner = self.size("ssm.inner_size")
        if value_heads % key_heads or inner % value_heads:
            self.file.refuse(
                f"{key_heads} key heads, {value_heads} value heads, {inner} columns: no multiples"
            )
        gdn = (key_heads, value_heads, self.size("ssm.state_size"), inner // value_heads)
        interval = self.size("full_attention_interval", INTERVAL)
        full = self._full(layers, interval)
        if full is not None:  # one model has one configuration, however its file says it
            interval = INTERVAL
        return {"gdn": gdn, "interval": interval, "full_layers": full}

    def _full(self, layers: int, interval: int) -> tuple[int, ...] | None:
        """Layers with full attention, None where the interval says the same."""
        flags = self.get("attention.recurrent_layers")
        if flags is None:
            return None
        if not isinstance(flags, list) or len(flags) < layers:
            self._refuse("attention.recurrent_layers", flags)
        full = tuple(layer for layer in range(layers) if not flags[layer])
        by_interval = tuple(range(interval - 1, layers, interval))
        return None if full == by_interval else full
