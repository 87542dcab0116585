"""A model whose loading is told: tensors, bytes and bytes a second, while an engine takes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from parity.model.memory import size_text, weight_bytes
from parity.model.model import Around, Model
from parity.progress import Progress

SHOWN = 10**8  # bytes of a model from which on loading is shown: a smaller one is there at once
TOLD = 10**9  # bytes of a model from which on a line stays that says how long it took


class Watched(Around):
    """``model``, and a progress line for each tensor that is asked of it, from 0.1 GB on.

    Tensors are asked for on several threads. Everything else is the model's own.
    """

    def __init__(
        self,
        model: Model,
        label: str,
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(model)
        self._label, self._progress, self._clock = label, progress, clock
        self._began = clock()
        self._total = weight_bytes(model)
        self._tensors = sum(1 for _ in model.names())
        self._count = self._bytes = 0
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def tensor(self, name: str) -> np.ndarray:
        """One tensor."""
        array = self.model.tensor(name)
        with self._lock:
            self._count += 1
            self._bytes += array.nbytes
            if self._total < SHOWN:
                return array
            where = f"tensor {self._count:,} of {self._tensors:,}, {self._rate()}"
            done, total = self._bytes // 10**6, self._total // 10**6
            self._progress.update(self._label, where, done, total, "MB")
        return array

    def finish(self) -> None:
        """Say what a large model took; to be called when the engine holds it."""
        if self._bytes >= TOLD:
            seconds = self._clock() - self._began
            text = f"{size_text(self._bytes)} in {seconds:,.1f} s, {self._rate()}"
            self._progress.note(f"{self._label}: {self.label} loaded, {text}")

    def _rate(self) -> str:
        seconds = self._clock() - self._began
        return f"{self._bytes / 1e9 / seconds:,.2f} GB/s" if seconds > 0 else "0 GB/s"
