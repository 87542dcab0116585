"""Drill-down: rerun both sides for one key, keep its tensor and those that feed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parity.compare import compare_dumps
from parity.dump import MAIN, Dump, Entry
from parity.elements import compare_tensors
from parity.families import feeding_fields, layer_fields
from parity.keys import FINAL_FIELDS, Key
from parity.protocol import Step
from parity.run import Run, Side, State
from parity.tree import Elements, KeyRow


@dataclass(frozen=True)
class Rerun:
    """What a rerun of one step gave: entries of its place and the kept tensors."""

    entries: dict[Key, Entry]
    tensors: dict[Key, np.ndarray]


@dataclass(frozen=True)
class Start:
    """Where reruns of one side begin: its tokens, and the state before the first decoded one."""

    side: Side
    run: Run
    fed: Sequence[int]
    state: State | None

    def step_at(self, pos: int, **plan: object) -> Step:
        """Run up to ``pos`` and report that step as ``plan`` asks; bits are those of the run."""
        wanted = self.run.plan(**plan)
        engine, tokens = self.side.engine, [*self.run.prompt, *self.fed]
        if self.state is not None and pos >= self.run.start:
            self.side.write_state(self.state)
            before = tokens[self.run.start : pos]
        else:
            engine.reset()
            before = tokens[:pos]
            if before:
                engine.prefill(before)
                before = []
        for token in before:
            engine.step(token)
        return engine.step(tokens[pos], wanted)


def rerun_key(start: Start, key: Key) -> Rerun:
    """Rerun the step of ``key`` with its tensor, and the tensors and digests of what feeds it."""
    feeds = feeding_keys(start.run, key)
    tensors = frozenset({key, *feeds}) if start.side.has("capture") else frozenset()
    places = frozenset((feed.pos, feed.layer) for feed in (key, *feeds))
    step = start.step_at(key.pos, places=places, tensors=tensors)
    return Rerun({entry.key: entry for entry in step.entries}, step.tensors)


def feeding_keys(run: Run, key: Key) -> list[Key]:
    """Dumped keys of the same position whose values the op of ``key`` reads, in order."""
    config, keys = run.model.config, []
    for field in feeding_fields(key.field):
        layer = key.layer
        if field.endswith("<"):
            layer = config.layers - 1 if key.layer is None else key.layer - 1
        name = field.rstrip("<")
        if layer is None or layer < 0:
            exists = layer is None and name in FINAL_FIELDS
        else:
            exists = name in layer_fields(config, layer, run.fields)
        if exists:
            keys.append(Key(key.pos, layer, name))
    return keys


def input_rows(run: Run, key: Key, ref: Rerun, dut: Rerun) -> list[KeyRow]:
    """State of each key that feeds ``key``, from the reruns."""
    feeds = feeding_keys(run, key)
    sides = []
    for rerun in (ref, dut):
        entries = [rerun.entries[feed] for feed in feeds if feed in rerun.entries]
        sides.append(Dump({"hash": run.hash_name}, {MAIN: entries}))
    return compare_dumps(*sides).keys


def key_elements(key: Key, ref: Rerun, dut: Rerun) -> Elements | None:
    """Element-level detail of ``key``, where both sides could give its tensor."""
    if key not in ref.tensors or key not in dut.tensors:
        return None
    return compare_tensors(key.tag, ref.tensors[key], dut.tensors[key])


def unstable_side(key: Key, first_run: tuple[Dump, Dump], reruns: tuple[Rerun, Rerun]) -> str:
    """ "ref" or "dut" when that side's rerun did not give the digest of its first run, else ""."""
    for role, dump, rerun in zip(("ref", "dut"), first_run, reruns, strict=True):
        before = next((entry for entry in dump.entries if entry.key == key), None)
        after = rerun.entries.get(key)
        if before is not None and (after is None or after.digest != before.digest):
            return role
    return ""
