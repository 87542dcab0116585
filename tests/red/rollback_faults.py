"""Engines whose mark or rollback is wrong on purpose: ``tests.red.rollback_faults:NAME``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from parity.errors import InputError
from parity.model.checks import no_mark
from parity.protocol import Plan, Step
from parity_cpu.engine import Engine


class Leaves(Engine):
    """A rollback that leaves some arrays as the draft left them."""

    def left(self) -> list[np.ndarray]:
        """The arrays it forgets."""
        raise NotImplementedError

    def rollback(self) -> None:
        kept = [array.copy() for array in self.left()]
        super().rollback()
        for array, values in zip(self.left(), kept, strict=True):
            array[...] = values


class SkipsS(Leaves):
    """S is not restored."""

    def left(self) -> list[np.ndarray]:
        return [layer["s"] for layer in self._state.layers if "s" in layer]


class SkipsHist(Leaves):
    """hist is not restored."""

    def left(self) -> list[np.ndarray]:
        return [layer["hist"] for layer in self._state.layers if "hist" in layer]


class SkipsLast(Leaves):
    """The last layer with a recurrence is not restored."""

    def left(self) -> list[np.ndarray]:
        return list(self._state.recurrent())[-2:]


class SkipsElement(Leaves):
    """One element of one S is not restored."""

    def left(self) -> list[np.ndarray]:
        return [self._state.layers[1]["s"][2, 3, 4:5]]


class KeepsLength(Engine):
    """The length does not go back."""

    def rollback(self) -> None:
        length = self.length
        super().rollback()
        self.length = length


class SpoilsKv(Engine):
    """Going back clears the newest row that is still in use."""

    def rollback(self) -> None:
        super().rollback()
        if self.length:
            self._state.layers[-1]["k"][self.length - 1] = 0


class RestoresTwice(Engine):
    """A mark can be used again and again."""

    def rollback(self) -> None:
        marked = self._marked
        super().rollback()
        self._marked = marked


class Aliases(Engine):
    """The mark holds the state itself, not a copy of it."""

    def mark(self) -> None:
        super().mark()
        self._copies = list(self._state.recurrent())


class FirstMark(Engine):
    """A second mark does not replace the first."""

    def mark(self) -> None:
        if self._marked is None:
            super().mark()


class OnceCopied(Engine):
    """Only the first mark of all copies; later ones remember the length alone."""

    def mark(self) -> None:
        copies = self._copies
        super().mark()
        if copies is not None:
            for copy, old in zip(self._copies or [], self.old, strict=True):
                copy[...] = old
        self.old = [copy.copy() for copy in self._copies or []]


class OutlivesReset(Engine):
    """A reset does not drop the mark."""

    def reset(self) -> None:
        marked = self._marked
        super().reset()
        self._marked = marked

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().write_state(state)
        self._marked = None


class Silent(Engine):
    """Going back without a mark does nothing, and says nothing."""

    def rollback(self) -> None:
        if self._marked is not None:
            super().rollback()


class Cuts(Engine):
    """Going back without a mark is refused, after the length was cut."""

    def rollback(self) -> None:
        if self._marked is None:
            self.length = max(self.length - 1, 0)
            raise no_mark()
        super().rollback()


class NotAtZero(Engine):
    """No mark at position 0."""

    def mark(self) -> None:
        if self.length == 0:
            raise InputError("nothing to mark yet", "feed a token first")
        super().mark()


class Inert(Engine):
    """Its rows change no state at all: nothing could be left behind, and no fault could show."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        state = self.read_state()
        marked = self._marked
        steps = super().step_rows(tokens, plan)
        super().write_state(state)
        self._marked = marked
        return steps
