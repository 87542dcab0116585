"""Engines that break the promise of batches, and one that keeps it: sequences in a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from parity.errors import InputError
from parity.inject import move_element
from parity.keys import Key
from parity.protocol import Plan, Step
from parity_cpu import Engine
from tests.engines.broken_promises import Broken

Found = list[list[Step]]
PROMISE = "batch_keeps_sequences_apart"


class Batched(Engine):
    """One sequence after the other: right, whatever stands beside it."""

    capabilities: ClassVar[frozenset[str]] = Engine.capabilities | {"batch"}
    apart = True  # whether the engine is reset afterwards
    decoded = True  # whether a sequence that is decoded whole is refused

    def step_batch(
        self, sequences: Sequence[Sequence[int]], plan: Plan | None = None, decode: int = 0
    ) -> Found:
        if not sequences:
            raise InputError("a batch of no sequence", "give one")
        if self.decoded and min(map(len, sequences)) <= decode:
            raise InputError("nothing is left to decode from", "give longer sequences")
        found = []
        for tokens in sequences:
            self.reset()
            found.append([self.step(token, plan) for token in tokens])
        if self.apart:
            self.reset()
        return found


def with_batch(change: Callable[[Found, Sequence[Sequence[int]]], Any]) -> type[Engine]:
    """An engine whose batch is changed before it is given out."""

    class Changed(Batched):
        def step_batch(
            self, sequences: Sequence[Sequence[int]], plan: Plan | None = None, decode: int = 0
        ) -> Found:
            changed: Found = change(super().step_batch(sequences, plan, decode), sequences)
            return changed

    return Changed


def padded(found: Found, _: Any) -> Found:
    """The shorter sequence stands at the positions of the padded row."""
    moved = len(found[1]) - len(found[0]) if len(found) > 1 else 0
    steps = [
        replace(
            step,
            entries=[
                replace(one, key=Key(one.key.pos + moved, one.key.layer, one.key.field))
                for one in step.entries
            ],
        )
        for step in found[0]
    ]
    return [steps, *found[1:]]


def leaking(found: Found, sequences: Sequence[Sequence[int]]) -> Found:
    """A neighbour's last token moves an element of the first sequence's logits."""
    move_element(found[0][-1].logits, sequences[-1][-1] % found[0][-1].logits.size)
    return found


def bare(found: Found, _: Any) -> Found:
    return [[replace(step, entries=[]) for step in steps] for steps in found]


class NotReset(Batched):
    """Goes on where the last sequence ended."""

    apart = False


class NoSequenceIsFine(Batched):
    """Takes a batch of nothing."""

    def step_batch(
        self, sequences: Sequence[Sequence[int]], plan: Plan | None = None, decode: int = 0
    ) -> Found:
        return super().step_batch(sequences, plan, decode) if sequences else []


class DecodesFromNothing(Batched):
    """Takes a sequence that has no prompt."""

    decoded = False


BROKEN = (
    Broken("a sequence that is lost", PROMISE, with_batch(lambda s, _: s[1:]), "[5] steps, not"),
    Broken("positions of the padded row", PROMISE, with_batch(padded), "under ['t2_l0_nrm'"),
    Broken("a batch without keys", PROMISE, with_batch(bare), "step 0 of a sequence has no key"),
    Broken("a neighbour is read", PROMISE, with_batch(leaking), "beside other tokens, step 2"),
    Broken("a batch that stays", PROMISE, NotReset, "after a batch, step 0"),
    Broken("no sequence is taken", PROMISE, NoSequenceIsFine, "no sequence was not refused"),
    Broken("nothing to decode from", PROMISE, DecodesFromNothing, "decoded whole was not refused"),
)
