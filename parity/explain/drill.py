"""Reruns of one side: where they begin, and one step of them; the detail of one key."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parity.comparison.compare import compare_dumps
from parity.comparison.elements import compare_tensors
from parity.dump import MAIN, Dump, Entry
from parity.explain.dataflow import feeds_of
from parity.keys import Key
from parity.protocol import CONTRACT, Plan, Step
from parity.runs.run import Run, Side, State
from parity.tree import Elements, KeyRow

Entries = Mapping[Key, Entry]
KEPT = 64  # differing elements of a key whose values are kept


@dataclass(frozen=True)
class Start:
    """Where reruns of one side begin: its tokens, and the state before the first decoded one.

    ``end``: the state that its first run left.
    """

    side: Side
    run: Run
    fed: Sequence[int]
    state: State | None
    end: State | None = None

    @property
    def tokens(self) -> list[int]:
        """The prompt and what the side was fed after it."""
        return [*self.run.prompt, *self.fed]

    def go_to(self, pos: int, *, anew: bool = False) -> None:
        """Bring the side to the state before position ``pos`` of its run. ``anew``: by another
        prefill, even where the state that it left is known."""
        prompt, engine = self.run.start, self.side.engine
        if self.state is not None and pos >= prompt and not anew:
            self.side.write_state(self.state)
        else:
            engine.reset()
            if pos:
                engine.prefill(self.tokens[: min(pos, prompt)])
        for token in self.tokens[prompt:pos]:
            engine.step(token)

    def feed(self, pos: int, token: int, plan: Plan) -> Step:
        """One step at ``pos``, where the side must stand, as the run makes it: prefill in the
        prompt, of one token (contract 7: in any chunking), a decode step after it."""
        if pos < self.run.start:
            return self.side.engine.prefill([token], plan)[0]
        return self.side.engine.step(token, plan)

    def walk(self, wanted: Mapping[int, Collection[Key]], **plan: object) -> Iterator[Step]:
        """The steps at the positions of ``wanted``, each with the tensors of its keys: what
        ``step_at`` gives, without the whole way again for each."""
        start, stands, tokens = self.run.start, -1, self.tokens
        for pos in sorted(wanted):
            library = getattr(self.side.engine, "order", CONTRACT) != CONTRACT
            chunked = library and pos < start  # what it gives there depends on the chunks
            if stands < 0 or stands <= start <= pos or chunked:
                self.go_to(pos)
            else:
                for between in range(stands, pos):
                    self.feed(between, tokens[between], Plan(fields=()))
            yield self.feed(pos, tokens[pos], self.run.plan(**plan, tensors=frozenset(wanted[pos])))
            stands = pos + 1

    def step_at(self, pos: int, **plan: object) -> Step:
        """Run up to ``pos`` and report that step as ``plan`` asks; bits are those of the run."""
        self.go_to(pos)
        return self.feed(pos, self.tokens[pos], self.run.plan(**plan))


def input_rows(run: Run, key: Key, ref: Entries, dut: Entries) -> list[KeyRow]:
    """State of each dumped key that feeds ``key``, from the entries of a rerun of both sides."""
    feeds = feeds_of(run.model.config, key, run.fields).keys
    sides = []
    for entries in (ref, dut):
        found = [entries[feed] for feed in feeds if feed in entries]
        sides.append(Dump({"hash": run.hash_name}, {MAIN: found}))
    return compare_dumps(*sides).keys


def key_elements(
    key: Key, ref: Mapping[Key, np.ndarray], dut: Mapping[Key, np.ndarray]
) -> Elements | None:
    """Element-level detail of ``key``, where both sides could give its tensor."""
    if key not in ref or key not in dut:
        return None
    return compare_tensors(key.tag, ref[key], dut[key], limit=KEPT)
