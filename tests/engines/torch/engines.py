"""Engines of the tests: opened, loaded and fed in one line; folders of tiny models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from parity.model.model import Model
from parity.protocol import EngineSettings, Plan, Step
from parity_torch import HfEngine
from parity_torch.requirements import quiet

POSITIONS = 64
SIZES: dict[str, Any] = {
    **{"vocab_size": 61, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
    **{"max_position_embeddings": 128},
    **{f"{name}_token_id": None for name in ("bos", "eos", "pad")},
}


def opened(text: str, *, seed: int = 7, weights: str | None = None, **options: str) -> Model:
    """The model of ``hf:text``."""
    return HfEngine.open_model(text, seed=seed, weights=weights, options=options)


def engine(text: str | Path, *, seed: int = 7, **options: str) -> HfEngine:
    """An engine with the model of ``hf:text,options`` loaded."""
    made = HfEngine(EngineSettings("library", options={"threads": "1", **options}))
    made.load(opened(str(text), seed=seed), POSITIONS)
    return made


def everything(made: HfEngine) -> Plan:
    """Every field that the engine's taps have."""
    keys = made.taps.keys()
    return Plan(tuple(dict.fromkeys(field for _, field in keys)))


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """dtype, shape and bytes."""
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def first_other(ref: Step, dut: Step) -> str:
    """Tag of the first key that is not the same in two steps, "" for none."""
    assert [entry.key for entry in ref.entries] == [entry.key for entry in dut.entries]
    pairs = zip(ref.entries, dut.entries, strict=True)
    return next((one.key.tag for one, other in pairs if one != other), "")


def folder(into: Path, kind: str, *, weights: bool = True, **sizes: Any) -> Path:
    """A folder of a tiny ``kind`` (``Llama``), as transformers writes it."""
    import torch
    import transformers

    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **sizes})
    name = f"{kind.removesuffix('Text')}ForCausalLM"
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module = getattr(transformers, name)(config)
        if weights:
            module.save_pretrained(into)
        else:
            config.architectures = [name]
            config.save_pretrained(into)
    return into
