"""Tiny random models of the library, and forwards of them with every value that the taps see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from parity.keys import Key
from parity.protocol import Plan, Step
from parity_torch.cache import cache_argument
from parity_torch.requirements import quiet
from parity_torch.taps import Row, Taps

_SIZES = {
    "vocab_size": 61,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
}
_DELTA = {
    "num_hidden_layers": 4,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
}
_EXPERTS = {"num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 32}
_SHARED = {**_EXPERTS, "shared_expert_intermediate_size": 28}
ARCHITECTURES = {
    "Qwen3ForCausalLM": ("Qwen3Config", _SIZES),
    "Qwen3MoeForCausalLM": ("Qwen3MoeConfig", {**_SIZES, **_EXPERTS, "norm_topk_prob": True}),
    "Qwen3NextForCausalLM": ("Qwen3NextConfig", {**_SIZES, **_DELTA, **_SHARED}),
    "Qwen3_5ForCausalLM": ("Qwen3_5TextConfig", {**_SIZES, **_DELTA}),
    "Qwen3_5MoeForCausalLM": ("Qwen3_5MoeTextConfig", {**_SIZES, **_DELTA, **_SHARED}),
    "LlamaForCausalLM": ("LlamaConfig", _SIZES),
}
DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))
Values = dict[tuple[int, str], Any]


def tiny(name: str, *, dtype: str = "float32", seed: int = 3, **more: Any) -> Any:
    """A random model of the architecture ``name``; its norms' weights are no constants."""
    kind, sizes = ARCHITECTURES[name]
    torch.manual_seed(seed)
    config = getattr(transformers, kind)(**sizes)
    options = {"attn_implementation": "eager", **more}
    module = getattr(transformers, name)._from_config(config, **options)
    for parameter in module.parameters():
        if parameter.ndim == 1:
            parameter.data += torch.rand(parameter.shape) - 0.5
    return module.to(getattr(torch, dtype)).eval()


def placed(module: Any, device: str) -> Any:
    """``module`` on ``device``; a test is skipped where torch finds no such device."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("gpu: torch finds no device")
    return module.to(device)


def plan_of(taps: Taps, positions: Iterable[int], **more: Any) -> Plan:
    """Every field of ``taps``, hashed and kept, at these positions."""
    fields = taps.keys()
    keys = [
        Key(pos, None if layer < 0 else layer, field)
        for pos in positions
        for layer, field in fields
    ]
    given = {"tensors": frozenset(keys), **more}
    return Plan(tuple({key.field for key in keys}), **given)


@dataclass
class Fed:
    """One sequence of ``module``, fed block by block."""

    module: Any
    taps: Taps
    past: Any = None
    pos: int = 0

    def feed(self, tokens: Sequence[int], plan: Plan | None) -> list[Step]:
        """One forward on the cache; one step for each token."""
        rows = [Row(self.pos + at, 0, at) for at in range(len(tokens))]
        name = cache_argument(self.module)
        given = {name: self.past, "use_cache": True} if name else {}
        with quiet(), torch.no_grad(), self.taps.watching(plan, rows) as seen:
            ids = torch.tensor([list(tokens)], device=device_of(self.module))
            out = self.module(ids, **given)
        self.past = out[name] if name else None
        self.pos += len(tokens)
        logits = (out.logits if hasattr(out, "logits") else out)[0].float().cpu().numpy()
        return [seen.step(at, row) for at, row in enumerate(logits)]

    def all(self, tokens: Sequence[int]) -> list[Step]:
        """``feed`` with every value kept."""
        positions = range(self.pos, self.pos + len(tokens))
        return self.feed(tokens, plan_of(self.taps, positions))


def device_of(module: Any) -> Any:
    """Where the weights are."""
    return next(module.parameters()).device


def of_forward(steps: Sequence[Step], device: Any = "cpu") -> Values:
    """The tensors of one forward by (layer, field): [T, ...], or the last token's [1, ...]."""
    found: dict[tuple[int, str], list[np.ndarray]] = {}
    for step in steps:
        for key, value in step.tensors.items():
            found.setdefault((-1 if key.layer is None else key.layer, key.field), []).append(value)
    return {place: torch.from_numpy(np.stack(values)).to(device) for place, values in found.items()}


def prints(steps: Iterable[Step]) -> list[tuple[str, str]]:
    """Every entry of ``steps``, written, and the bytes of the logits."""
    found = [(entry.key.tag, entry.value_text()) for step in steps for entry in step.entries]
    return [*found, *(("logits", step.logits.tobytes().hex()) for step in steps)]


def hooks_of(module: Any) -> int:
    """Hooks that stand on the modules of ``module`` now."""
    return sum(
        len(hooks)
        for each in module.modules()
        for hooks in (each._forward_hooks, each._forward_pre_hooks)
    )
