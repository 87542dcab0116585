"""What a fault's number decides: one stream of words for each number, the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from parity.model.generator import words
from parity.model.model import SyntheticModel, synthetic
from parity.runs.run import Run

PRESETS = ("moe-tiny", "hybrid-tiny", "dense-tiny")
T = TypeVar("T")
Edit = Callable[[np.ndarray], None]


class Draw:
    """Choices drawn one after the other from a stream that ``number`` alone decides."""

    def __init__(self, number: int, what: str = "fault") -> None:
        # The number is in the stream's name: the streams of neighbouring seeds overlap.
        self.number, self._stream, self._at = number, f"{what} {number}", 0

    def below(self, count: int) -> int:
        """An integer of 0 .. count - 1."""
        word = int(words(0, self._stream, self._at, 1)[0])
        self._at += 1
        return word % count

    def pick(self, choices: Sequence[T]) -> T:
        """One of ``choices``."""
        return choices[self.below(len(choices))]

    def once_in(self, count: int) -> bool:
        """True once in ``count`` draws or so."""
        return self.below(count) == 0


@dataclass(frozen=True)
class Edited:
    """A synthetic model with some tensors edited before either side loads them: both hold the same
    bytes. It brings about what synthetic weights lack: ties, zeros, subnormal values, NaN."""

    base: SyntheticModel
    told: str
    edits: dict[str, Edit] = field(hash=False, compare=False)

    @property
    def config(self):  # type: ignore[no-untyped-def]
        """Sizes and constants of the base."""
        return self.base.config

    @property
    def seed(self) -> int:
        """The base's seed: probes draw their tokens from it."""
        return self.base.seed

    @property
    def label(self) -> str:
        """The base's label and what was edited."""
        return f"{self.base.label}, {self.told}"

    def names(self):  # type: ignore[no-untyped-def]
        """Names of all tensors, in the order of the digest."""
        return self.base.names()

    def tensor(self, name: str) -> np.ndarray:
        """The tensor, edited where it is to be."""
        array = self.base.tensor(name)
        if name in self.edits:
            array = np.array(array, order="C")
            self.edits[name](array)
        return array


def draw_model(
    draw: Draw, presets: Sequence[str] = PRESETS, weights: Sequence[str] = ("q4", "q4", "f32")
) -> SyntheticModel:
    """A tiny model of one of the families, with a seed of its own."""
    return synthetic(draw.pick(presets), draw.below(1000), draw.pick(weights))


def draw_run(draw: Draw, model: SyntheticModel | Edited, **fixed: object) -> Run:
    """One or two dumped steps after a short prompt; ``fixed``: settings that are not drawn."""
    prompt = tuple(draw.below(model.config.vocab) for _ in range(2 + draw.below(6)))
    prefill = "ref" if draw.once_in(4) else "own"
    drawn = {
        "n": 1 + draw.below(2),
        "prefill": prefill,
        "dump_prefill": draw.once_in(4) and prefill == "own",
        "hash_name": "kestrel-fnv" if draw.once_in(8) else "fnv1a64",
        "extra_fields": draw.pick((("ffn", "s"), ("ffn", "s"), ("ffn",), ())),
    }
    return Run(model, prompt, **{**drawn, **fixed})  # type: ignore[arg-type]


def draw_position(draw: Draw, run: Run) -> int:
    """A position of the run; one that is not dumped is among them where each side prefills."""
    begins_early = run.prefill == "own" and (run.dump_prefill or draw.once_in(4))
    lowest = 0 if begins_early else run.start
    return lowest + draw.below(run.positions - lowest)
