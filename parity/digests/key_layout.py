"""Which keys a dump holds, in dataflow order: written once for all layers and positions alike.

The 2,120 keys of four tokens of a 48-layer model are one span of four positions, whose step is one
block of 48 layers and one block outside the layers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate, groupby
from typing import NamedTuple

from parity.keys import Key

OUTSIDE = -1  # layer of a block outside the layers

Field = tuple[str, str | None]  # name, and the type as a dump writes it (None: not recorded)


class Place(NamedTuple):
    """One key: the segment it stands in, its address, and its type as written or None."""

    segment: str
    key: Key
    type: str | None


class Block(NamedTuple):
    """Layers ``first`` to ``last`` of one step (both OUTSIDE: none), which have the same fields."""

    first: int
    last: int
    fields: tuple[Field, ...]

    @property
    def size(self) -> int:
        """Keys."""
        return (self.last - self.first + 1) * len(self.fields)


Step = tuple[Block, ...]


class Span(NamedTuple):
    """Positions ``first`` to ``last`` of one segment, whose steps hold the same keys."""

    segment: str
    first: int
    last: int
    step: Step


class Layout:
    """The keys of a dump by their place in the sequence, from 0."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self.spans = tuple(spans)
        self._ends = [*accumulate(_keys(span) for span in self.spans)]

    @classmethod
    def of(cls, places: Iterable[Place]) -> Layout:
        """The layout of keys that come in dataflow order, segment after segment."""
        return cls(_joined(_steps(places)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.spans == other.spans

    def __hash__(self) -> int:
        return hash(self.spans)

    def __iter__(self) -> Iterator[Place]:
        for span in self.spans:
            for pos in range(span.first, span.last + 1):
                for layer, (name, kind) in _step_keys(span.step):
                    yield Place(span.segment, Key(pos, layer, name), kind)

    def __getitem__(self, index: int) -> Place:
        """The key at ``index``, 0 .. len-1."""
        at = bisect_right(self._ends, index)
        span = self.spans[at]
        begin = self._ends[at] - _keys(span)
        step, inside = divmod(index - begin, _size(span.step))
        layer, (name, kind) = _field_at(span.step, inside)
        return Place(span.segment, Key(span.first + step, layer, name), kind)

    def index(self, segment: str, key: Key) -> int | None:
        """Where ``key`` of ``segment`` stands, or None."""
        firsts, numbers = self._by_segment.get(segment, ([], []))
        found = bisect_right(firsts, key.pos)
        if not found:
            return None
        at = numbers[found - 1]
        span = self.spans[at]
        inside = self._inside[span.step].get((key.layer, key.field))
        if inside is None or key.pos > span.last:
            return None
        return self._ends[at] - _keys(span) + (key.pos - span.first) * _size(span.step) + inside

    @property
    def segments(self) -> list[str]:
        """Names of the segments, in order."""
        return [*dict.fromkeys(span.segment for span in self.spans)]

    @property
    def samples(self) -> list[Key]:
        """The keys of the first position of every span: what a KeyOrder needs to be told."""
        return [
            Key(span.first, layer, name)
            for span in self.spans
            for layer, (name, _) in _step_keys(span.step)
        ]

    @property
    def untyped(self) -> int:
        """How many keys have no type."""
        return sum(
            (span.last - span.first + 1)
            * sum(kind is None for _, (_, kind) in _step_keys(span.step))
            for span in self.spans
        )

    @cached_property
    def _by_segment(self) -> dict[str, tuple[list[int], list[int]]]:
        """First positions, and numbers, of the spans of each segment."""
        found: dict[str, tuple[list[int], list[int]]] = {}
        for number, span in enumerate(self.spans):
            firsts, numbers = found.setdefault(span.segment, ([], []))
            firsts.append(span.first)
            numbers.append(number)
        return found

    @cached_property
    def _inside(self) -> dict[Step, dict[tuple[int | None, str], int]]:
        """For each distinct step: where a layer's field stands in it."""
        return {
            step: {(layer, name): at for at, (layer, (name, _)) in enumerate(_step_keys(step))}
            for step in {span.step for span in self.spans}
        }


def _size(step: Step) -> int:
    return sum(block.size for block in step)


def _keys(span: Span) -> int:
    return (span.last - span.first + 1) * _size(span.step)


def _field_at(step: Step, inside: int) -> tuple[int | None, Field]:
    """The layer and the field at place ``inside`` of a step."""
    at = 0
    while inside >= step[at].size:
        inside -= step[at].size
        at += 1
    layer, field = divmod(inside, len(step[at].fields))
    return None if step[at].first == OUTSIDE else step[at].first + layer, step[at].fields[field]


def _step_keys(step: Step) -> Iterator[tuple[int | None, Field]]:
    for block in step:
        for layer in range(block.first, block.last + 1):
            for field in block.fields:
                yield None if layer == OUTSIDE else layer, field


def _steps(places: Iterable[Place]) -> Iterator[Span]:
    """One span a position."""
    known: dict[Step, Step] = {}
    for (segment, pos), step in groupby(places, key=lambda place: (place.segment, place.key.pos)):
        made = tuple(_blocks(step))
        yield Span(segment, pos, pos, known.setdefault(made, made))


def _blocks(step: Iterable[Place]) -> Iterator[Block]:
    held: Block | None = None
    for layer, places in groupby(step, key=lambda place: place.key.layer):
        number = OUTSIDE if layer is None else layer
        fields = tuple((place.key.field, place.type) for place in places)
        if held is not None:
            # A layer 0 after fields outside the layers does not go on from their OUTSIDE.
            if held.first != OUTSIDE and number == held.last + 1 and fields == held.fields:
                held = held._replace(last=number)
                continue
            yield held
        held = Block(number, number, fields)
    if held is not None:
        yield held


def _joined(spans: Iterable[Span]) -> Iterator[Span]:
    """Neighbouring spans with the same step, joined."""
    held: Span | None = None
    for span in spans:
        if held is not None:
            if (held.segment, held.last + 1, held.step) == (span.segment, span.first, span.step):
                held = held._replace(last=span.last)
                continue
            yield held
        held = span
    if held is not None:
        yield held
