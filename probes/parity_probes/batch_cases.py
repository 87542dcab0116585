"""Which sequences stand together: copies, other prompts, a short one beside long ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from parity.model.generator import prompt_tokens
from parity.model.model import Model
from parity.runs.probe import Ask
from parity_probes.blocks import seed_of

COPIES, OTHERS, RAGGED = "copies", "other prompts", "ragged"
KINDS = (COPIES, OTHERS, RAGGED)
DECODE = 2  # last tokens of every sequence, fed one a forward: their products have B rows
_LONG, _SHORT = 700, 40  # lengths of a ragged batch in case B20 of the reports
_OTHER = 1 << 20  # from the seed of the sequence to that of its first neighbour
_CHANGED = 1 << 10  # and on to that of the neighbour's other contents


@dataclass(frozen=True)
class Case:
    """A batch. ``place``: where the sequence stands that every batch has; ``sequences``: ids."""

    neighbours: str
    place: int
    sequences: tuple[tuple[int, ...], ...]

    @property
    def b(self) -> int:
        """Sequences in it."""
        return len(self.sequences)

    def padding(self, at: int) -> int:
        """Tokens that the batch puts before a sequence."""
        return max(map(len, self.sequences)) - len(self.sequences[at])


class Cases:
    """The batches of one seed. ``ask.starts``: the first of them is the length of the prompt."""

    def __init__(self, model: Model, ask: Ask) -> None:
        self._seed, self._ids = seed_of(model), model.config.ids
        self.length = max(1, ask.starts[0]) + DECODE
        room = model.config.context
        self.long = max(self.length, min(self.length * _LONG // _SHORT, room))
        self.sequence = tuple(ask.tokens(model, self.length))

    def of(self, b: int) -> Iterator[Case]:
        """Every batch of ``b`` sequences: with unlike neighbours the one stands first and last."""
        for kind in KINDS:
            for place in (0,) if kind == COPIES else (0, b - 1):
                yield self.case(b, kind, place)

    def case(self, b: int, kind: str, place: int) -> Case:
        """One batch."""
        mates = [self.sequence] * (b - 1)
        if kind != COPIES:
            mates = [self._other(at, kind) for at in range(b - 1)]
        return Case(kind, place, (*mates[:place], self.sequence, *mates[place:]))

    def changed(self, case: Case) -> Case:
        """The same lengths at the same places, the neighbours' tokens all drawn anew."""
        drawn = [
            one if at == case.place else self._drawn(_CHANGED + at, len(one))
            for at, one in enumerate(case.sequences)
        ]
        return replace(case, sequences=tuple(drawn))

    def _other(self, at: int, kind: str) -> tuple[int, ...]:
        return self._drawn(at, self.long if kind == RAGGED else self.length)

    def _drawn(self, at: int, length: int) -> tuple[int, ...]:
        return tuple(prompt_tokens(self._seed + _OTHER + at, length, self._ids))

    def positions(self, sequences: Sequence[Sequence[int]]) -> frozenset[int]:
        """What is compared: every position of the short sequence, and of a longer one its last
        prompt token and what is decoded."""
        last = {len(one) - 1 - back for one in sequences for back in range(DECODE + 1)}
        return frozenset((*range(self.length), *(pos for pos in last if pos >= 0)))
