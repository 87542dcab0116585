"""What ``hf:MODEL`` names, beside what parity's own opener reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from parity.errors import ParityBug
from parity.model.config import ModelConfig
from parity.model.file_model import Source
from parity.model.model import SyntheticModel


@dataclass(frozen=True)
class RandomModel(SyntheticModel):
    """A folder with config.json and no weights, of an architecture that the contract has: our
    synthetic f32 weights of ``seed``, so that every engine can run it."""

    path: Path

    @property
    def label(self) -> str:
        """Folder, that its weights are random, and their seed."""
        return f"{self.path.resolve().name} random f32 seed {self.seed}"


@dataclass(frozen=True)
class ModulesModel:
    """A folder of an architecture that the contract has no arithmetic for: transformers alone
    runs it. ``parameters``: names in the library's order. ``weight_bytes``: as f32. ``random``:
    the folder has no weights, the library draws them from ``seed``."""

    config: ModelConfig
    path: Path
    parameters: tuple[str, ...]
    weight_bytes: int
    source: Source
    random: bool = False
    seed: int = 0

    @property
    def label(self) -> str:
        """Folder and architecture; seed of random weights."""
        name = f"{self.path.resolve().name} ({self.config.name})"
        return f"{name} random seed {self.seed}" if self.random else name

    def names(self) -> Iterator[str]:
        """Names of all parameters."""
        return iter(self.parameters)

    def tensor(self, name: str) -> NoReturn:
        """Nothing: the library reads its weights itself."""
        raise ParityBug(f"{self.label}: tensor {name} was asked for outside transformers")
