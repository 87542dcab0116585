"""A model read from files: where its bytes lie, and how each tensor is made of them on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from parity.model.config import ModelConfig

Recipe = Callable[[], np.ndarray]

GGUF, CONFIG = ".gguf", "config.json"  # what a model's file, and a file of its folder, is known by
MAGIC = b"GGUF"
MISSING_PACKAGE = "run: pip install 'parity-harness[models]'"


@dataclass(frozen=True)
class Source:
    """Where a model comes from. ``stored``: its storage in words, e.g. ``197 Q4_0, 113 F32``.

    ``file_bytes``: bytes of the tensors that are read, as they lie in the files; once loaded, what
    is widened to f32 takes more (``parity.model.memory.weight_bytes``).
    """

    path: Path
    format: Literal["gguf", "safetensors"]
    file_bytes: int
    stored: str


@dataclass(frozen=True)
class FileModel:
    """A model of a GGUF file or of a folder of safetensors; a ``parity.model.model.Model``.

    ``recipes``: one per tensor, in the order of ``weight_shapes(config)``. A Q4_0 matrix X is two
    of them: ``X.d`` uint16 (f16 bits), then ``X.qs`` uint8; every other tensor is float32. A recipe
    may hand out a view of a memory map. Shapes, dtypes and non-finite values are checked
    when an engine loads them (``parity.model.loading``), names when the files are opened. ``seed``:
    of the prompts that are drawn for it; no weight depends on it.
    """

    config: ModelConfig
    label: str
    recipes: Mapping[str, Recipe]
    source: Source
    seed: int = 0

    def names(self) -> Iterator[str]:
        """Names of all tensors, in the order of the digest."""
        return iter(self.recipes)

    def tensor(self, name: str) -> np.ndarray:
        """The values of one tensor, C-contiguous unless the file stores them otherwise."""
        return self.recipes[name]()
