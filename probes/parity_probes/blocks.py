"""What the probes share: single steps to hold against, states written over garbage, comparing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from parity.comparison.compare import compare_dumps
from parity.comparison.states import compare_states
from parity.dump import MAIN, Dump, Entry
from parity.dumps.table import joined
from parity.families import dumped_fields, field_op
from parity.inject import move_element
from parity.keys import Key
from parity.model.config import ModelConfig
from parity.model.generator import words
from parity.model.model import Model
from parity.protocol import Injection, Plan, Step
from parity.runs.run import Side, State
from parity.status import Verdict
from parity.tree import KeyState, StateDiff, Tree

ROWS = ("k", "ks", "v", "vs")  # parts by position; the others are whole (contract 6)
GROUPS = {"k": "KV rows", "v": "KV rows", "ks": "scales", "vs": "scales", "s": "S"}
Fill = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Outcome:
    """Steps of a block, the state after it, and further steps from there."""

    steps: list[Step]
    state: State
    further: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Judged:
    """Keys of the block, the state after it, keys of the further steps (None without any)."""

    keys: Tree | None
    state: StateDiff
    further: Tree | None

    @property
    def equal(self) -> bool:
        """Whether all that was compared is equal."""
        return self.state.equal and all(
            tree is None or tree.verdict is Verdict.SAME for tree in (self.keys, self.further)
        )

    @property
    def compared(self) -> int:
        """Keys on either side."""
        return sum(tree.counts.total for tree in (self.keys, self.further) if tree is not None)


def plan_for(config: ModelConfig, **changes: Any) -> Plan:
    """Every dumped field of the family."""
    return Plan(**{"fields": dumped_fields(config), **changes})


def seed_of(model: Model) -> int:
    """The seed a prompt is drawn from: the model's own, 0 where it has none."""
    return int(getattr(model, "seed", 0))


def read_state(side: Side) -> State:
    """Copies of every part; the probes need the capability ``state``."""
    state = side.read_state()
    return {} if state is None else state


class Singles:
    """Single steps along ``tokens`` from position 0, run once: what every block is held against.

    ``keep``: lengths whose state is kept; any other is made again when it is asked for.
    """

    def __init__(
        self, side: Side, tokens: Sequence[int], keep: Collection[int], plan: Plan
    ) -> None:
        self.side, self.tokens, self.plan = side, list(tokens), plan
        self.steps: list[Step] = []
        self._states: dict[int, State] = {}
        side.engine.reset()
        for length in range(len(tokens) + 1):
            if length in keep:
                self._states[length] = read_state(side)
            if length < len(tokens):
                keys = len(self.steps[0].entries) if self.steps else 0
                side.progress(f"single t{length}", length * keys, len(tokens) * keys)
                self.steps.append(side.engine.step(tokens[length], plan))

    def state(self, length: int) -> State:
        """The state after ``length`` tokens."""
        if length not in self._states:
            below = max((kept for kept in self._states if kept < length), default=0)
            if below in self._states:
                self.side.write_state(self._states[below])
            else:
                self.side.engine.reset()
            for token in self.tokens[below:length]:
                self.side.engine.step(token)
            self._states[length] = read_state(self.side)
        return self._states[length]

    def outcome(self, start: int, size: int, more: int) -> Outcome:
        """What a block of ``size`` at ``start`` and ``more`` further steps must give."""
        end = start + size
        return Outcome(self.steps[start:end], self.state(end), self.steps[end : end + more])


def garbage(array: np.ndarray) -> np.ndarray:
    """All bits set: NaN in every float, -1 in every integer."""
    return np.frombuffer(b"\xff" * array.nbytes, array.dtype).reshape(array.shape)


def write_over(side: Side, state: State, positions: int, fill: Fill = garbage) -> None:
    """Write ``state``, with ``fill`` in every KV row past its length up to ``positions``.

    Rows past the length are never read (contract 6), so what they hold must not matter. Without
    this they hold the right rows of an earlier run over the same tokens, and would hide a row that
    is not written or written elsewhere.
    """
    if any(part_of(name) in ROWS for name in state):
        side.write_state(_filled(state, positions, fill))
    side.write_state(state)


def part_of(name: str) -> str:
    """``ks`` of ``l3_ks``; a name without a layer is its own part."""
    return name.split("_", 1)[-1]


def group_of(name: str) -> str:
    """What the part is called where parts are listed: ``KV rows``, ``scales``, ``S``, ``hist``."""
    return GROUPS.get(part_of(name), part_of(name))


def _filled(state: State, positions: int, fill: Fill) -> State:
    rows = positions - int(state["lengths"][0])
    longer = {"lengths": np.array([positions], np.int32)}
    for name, array in state.items():
        if part_of(name) in ROWS:
            more = np.empty((rows, *array.shape[1:]), array.dtype)
            longer[name] = np.concatenate([array, fill(more)])
        elif name != "lengths":
            longer[name] = array
    return longer


def run_rows(
    side: Side, start: State, block: Sequence[int], further: Sequence[int], plan: Plan, room: int
) -> Outcome:
    """From ``start`` over garbage: ``block`` as rows of one forward, then ``further`` singly."""
    engine: Any = side.engine
    write_over(side, start, room)
    steps = engine.step_rows(block, plan)
    return Outcome(steps, read_state(side), run_singles(side, further, plan))


def run_singles(side: Side, tokens: Sequence[int], plan: Plan) -> list[Step]:
    """Single steps from where the engine stands; nothing is injected."""
    quiet = replace(plan, inject=None)
    return [side.engine.step(token, quiet) for token in tokens]


def compare_steps(ref: Sequence[Step], dut: Sequence[Step]) -> Tree:
    """Every key of both, in dataflow order."""
    sides = [
        Dump({}, {MAIN: joined(step.entries for step in steps)}, name)
        for name, steps in (("ref", ref), ("dut", dut))
    ]
    return compare_dumps(*sides)


def judge(ref: Outcome, dut: Outcome) -> Judged:
    """Compare what two blocks gave; no steps on either side are not compared."""
    return Judged(
        compare_steps(ref.steps, dut.steps) if ref.steps or dut.steps else None,
        compare_states("end", ref.state, dut.state),
        compare_steps(ref.further, dut.further) if ref.further or dut.further else None,
    )


def differing_logits(ref: np.ndarray, dut: np.ndarray) -> np.ndarray:
    """Flat indices at which two rows of float32 logits differ as uint32."""
    return np.flatnonzero(ref.view(np.uint32) != dut.view(np.uint32))


def op_of(side: Side, key: Key) -> str:
    """The op that makes the value behind a key: as the engine names it (``made_by``, an optional
    method of engines of another arithmetic than the contract's), else by the contract."""
    tell: Callable[[Key], str] | None = getattr(side.engine, "made_by", None)
    return field_op(key.field) if tell is None else tell(key)


def cause_of(side: Side, judged: Judged, start: int, size: int) -> str:
    """The op behind the first differing key of a block, and its row; "" where no key differs."""
    trees = [tree for tree in (judged.keys, judged.further) if tree is not None and tree.first]
    if not trees or trees[0].first is None:
        return ""
    key = Key.parse(trees[0].first)
    row = key.pos - start
    where = f"row {row} of {size}" if 0 <= row < size else f"position {key.pos}, after the block"
    text = f"{op_of(side, key)}, {where}; every key before it is equal"
    found = next(line for line in trees[0].keys if line.state != KeyState.SAME)
    if "nonfinite" in (found.dut or "") and "nonfinite" not in (found.ref or ""):
        text += "; not finite, as KV rows past the length are here: are they read?"
    return text


def state_text(found: StateDiff) -> str:
    """Which groups of parts differ, from which layer on, and which are equal."""
    differing: dict[str, str] = {}
    for part in found.parts:
        if part.differ:
            differing.setdefault(group_of(part.name), _where(part.name, part.first_row))
    equal = dict.fromkeys(group_of(part.name) for part in found.parts)
    same = ", ".join(name for name in equal if name not in differing)
    texts = [f"{name} differ{where}" for name, where in differing.items()]
    return "; ".join([*texts, *([f"{same} equal"] if same else [])])


def _where(name: str, row: int | None) -> str:
    if name == "lengths":
        return ""
    layer = name.partition("_")[0].removeprefix("l")
    position = f", position {row}" if part_of(name) in ROWS else ""
    return f" from layer {layer} on{position}"


def injection(entries: Sequence[Entry], seed: int) -> tuple[Injection, str]:
    """A key of ``entries`` and an element of it, drawn from ``seed``, and how the fault is told."""
    draw, place = (int(word) for word in words(seed, "control", 0, 2))
    entry = entries[draw % len(entries)]
    index = place % (int(np.prod(entry.type.shape)) if entry.type else 1)
    unit = "1 step" if entry.type and entry.type.dtype.startswith("int") else "1 ULP"
    return Injection(entry.key, index), f"{unit} at {entry.key} element {index}"


@dataclass(frozen=True)
class Fired:
    """A control: whether the planted fault was found at exactly its place, and how it is told."""

    fired: bool
    text: str


def control(
    side: Side, ref: Sequence[Step], seed: int, again: Callable[[Injection | None], Sequence[Step]]
) -> Fired:
    """The control: a fault planted behind a random key must be found at exactly that key.

    ``again`` runs the dut with an injection, or without one where the engine cannot inject: then
    one digit of a copy of its keys is changed, and the line says ``dump level``.
    """
    entries = [entry for step in ref for entry in step.entries]
    fault, told = injection(entries, seed)
    if side.has("inject"):
        dut = list(again(fault))
    else:
        told = f"dump level: one digit of {fault.key}"
        dut = [_changed(step, fault.key) for step in again(None)]
    found = compare_steps(ref, dut).first
    if found == fault.key.tag:
        return Fired(True, f"fired: {told}, found at that key")
    return Fired(False, f"did not fire: {told}, found at {found or 'nothing'}")


def state_control(side: Side, ref: State, seed: int) -> Fired:
    """The control of a state that an engine went back to: one element of a random row of a random
    part is moved in it, and comparing it with ``ref`` must name exactly that part and row."""
    state = read_state(side)
    draw, place = (int(word) for word in words(seed, "state control", 0, 2))
    names = [name for name, array in state.items() if array.size and name != "lengths"]
    name = names[draw % len(names)]
    moved, index = state[name].copy(), place % state[name].size
    move_element(moved, index)
    row, element = divmod(index, moved[0].size)
    unit = "1 ULP" if moved.dtype == np.float32 else "1 step"
    side.write_state({**state, name: moved})
    found = compare_states("end", ref, read_state(side))
    where = f"{name} row {row}"
    exact = found.first in (where, f"{where} (position {row})")
    fired = exact and sum(part.differ for part in found.parts) == 1
    told = f"{unit} in {where} element {element}"
    if fired:
        return Fired(True, f"{told}, found there")
    return Fired(False, f"did not fire: {told}, found at {found.first or 'nothing'}")


def _changed(step: Step, key: Key) -> Step:
    entries = [replace(e, digest=e.digest ^ 1) if e.key == key else e for e in step.entries]
    return replace(step, entries=entries)


def listed(sizes: Sequence[int]) -> str:
    """``2..8`` for a range, else ``2, 4, 8``."""
    if len(sizes) > 2 and list(sizes) == list(range(sizes[0], sizes[-1] + 1)):
        return f"{sizes[0]}..{sizes[-1]}"
    return ", ".join(map(str, sizes))
