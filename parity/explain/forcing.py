"""Forced steps: the dut's step at a position, with each of its ops on the ref's inputs.

The dut takes over the ref's state from before the position and makes its step, while every value
it makes is replaced, for whatever reads it, by the ref's (capability ``replay``). The digests it
reports are then what its ops make of the ref's inputs: one step replays all ops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.comparison.states import unlike_form
from parity.dtypes import dtype_name
from parity.dump import TensorType
from parity.explain.attribution import attribute_birth, lent_functions, with_arguments
from parity.explain.drill import Entries, Start, key_elements
from parity.explain.rerun import Visit, step_entries, unlike
from parity.keys import Key, KeyOrder
from parity.protocol import Call, Step
from parity.runs.run import State
from parity.runs.stability import RUNS, unlike_entries
from parity.tree import Elements, FunctionDiff, Stability

Tensors = Mapping[Key, np.ndarray]
Calls = Mapping[Key, Sequence[Call]]
NEEDS = (("ref", ("state", "capture")), ("dut", ("state", "replay")))
DETAILS = 8  # births whose elements and kernels are kept: the first of each field


@dataclass(frozen=True)
class Detail:
    """What is kept of a birth beside its digests; elements are on the ref's inputs.

    ``explained``: whether the functions that differ are all there is; None where that is not known.
    """

    elements: Elements | None
    ref_kernels: list[str]
    dut_kernels: list[str]
    functions: list[FunctionDiff]
    explained: bool | None = None


class Forcing:
    """Forces steps of the dut.

    ``lacking``: why none can be forced, or "". ``layer``: (position, layer) to which details are
    limited, None for all. ``replays``: steps forced so far; ``kernels``: by field, of ref
    and dut; ``sources``: by what ran, the files of both. A position is forced once: what the dut's
    ops make of the ref's inputs does not depend on the dut's own run.
    """

    def __init__(
        self, starts: tuple[Start, Start], layer: tuple[int, int | None] | None = None
    ) -> None:
        self._ref, self._dut = starts
        self._layer = layer
        self.lacking = _lacking(starts)
        self.details: dict[Key, Detail] = {}
        self.kernels: dict[str, tuple[list[str], list[str]]] = {}
        self.sources: dict[str, tuple[str, str]] = {}
        self.replays = 0
        self._done: dict[int, tuple[Entries, frozenset[Key]]] = {}

    def force(
        self, visit: Visit, tensors: Tensors, states: tuple[State, State]
    ) -> Visit | Stability:
        """``visit`` with what the dut's ops make of the ref's inputs; where they make it in two
        ways, the dut is unstable. ``tensors``: the ref's, of all keys of the position; ``states``:
        of both sides before it. Both sides stand after the position, before and afterwards."""
        if visit.pos in self._done:
            entries, used = self._done[visit.pos]
            return replace(visit, forced=entries, given=used)
        other = unlike_form(*states)
        if other:
            self.lacking = f"the states have other parts: {other}"
            return visit
        after = self._dut.side.read_state() or {}
        given = _Given(tensors, visit.dut)
        entries = step_entries(self._step(visit, states[0], given))
        self._done[visit.pos] = entries, frozenset(given.used)
        done = replace(visit, forced=entries, given=given.used)
        key = self._add_details(done, states[0], given)
        self._dut.side.write_state(after)
        return done if key is None else Stability(RUNS, self._dut.side.role, key.tag, RUNS)

    def knows(self, pos: int) -> bool:
        """Whether the step at ``pos`` was forced before."""
        return pos in self._done

    def _step(self, visit: Visit, state: State, given: _Given, **plan: object) -> Step:
        self.replays += 1
        self._dut.side.write_state(state)
        wanted = self._dut.run.plan(fields=visit.fields, replace=given, **plan)
        return self._dut.feed(visit.pos, visit.tokens[0] or 0, wanted)

    def _add_details(self, visit: Visit, state: State, given: _Given) -> Key | None:
        """Keep the detail of births in fields that have none; the first key that the dut does not
        make twice alike, if any."""
        chosen = self._chosen(visit)
        if not chosen:
            return None
        ref, dut = (start.side for start in (self._ref, self._dut))
        asked = chosen | self._untraced(visit)
        traced = {side.role: asked if side.has("trace") else frozenset() for side in (ref, dut)}
        kept = chosen if dut.has("capture") else frozenset()
        step = self._step(visit, state, given, tensors=kept, trace=traced[dut.role])
        lent = self._lent(visit, state, given.tensors, chosen)
        told = self._ref_calls(visit, state, traced[ref.role])
        self._keep_kernels(asked, told, step.calls)
        for key in chosen:
            elements = key_elements(key, given.tensors, step.tensors)
            calls = told.get(key, ()), step.calls.get(key, ())
            detail = _detail(key, elements, calls, (self._ref, self._dut))
            if detail.functions and key in lent:
                same = not unlike(lent[key], (visit.forced or {}).get(key))
                detail = replace(detail, explained=same)
            self.details[key] = detail
        return unlike_entries((visit.forced or {}).values(), step.entries)

    def _untraced(self, visit: Visit) -> frozenset[Key]:
        """The first key of each field whose kernels are not known, in the searched layer."""
        first: dict[str, Key] = {}
        for key in visit.keys:
            if self._layer in (None, (key.pos, key.layer)) and key.field not in self.kernels:
                first.setdefault(key.field, key)
        return frozenset(first.values())

    def _keep_kernels(self, keys: Collection[Key], ref: Calls, dut: Calls) -> None:
        for key in sorted(keys, key=KeyOrder()):
            ran = _kernels(ref.get(key, ())), _kernels(dut.get(key, ()))
            if any(ran):
                self.kernels.setdefault(key.field, ran)
        for side, told in enumerate((ref, dut)):
            for call in (call for key in keys for call in told.get(key, ()) if call.source):
                files = [*self.sources.get(call.op, ("", ""))]
                files[side] = call.source
                self.sources[call.op] = files[0], files[1]

    def _chosen(self, visit: Visit) -> frozenset[Key]:
        done = {key.field for key in self.details}
        first: dict[str, Key] = {}
        for key in filter(visit.departs, visit.keys):
            if self._layer in (None, (key.pos, key.layer)) and key.field not in done:
                first.setdefault(key.field, key)
        return frozenset(list(first.values())[: DETAILS - len(self.details)])

    def _lent(self, visit: Visit, state: State, tensors: Tensors, keys: frozenset[Key]) -> Entries:
        """What the ref's ops make of its own inputs with the dut's elementary functions; nothing
        where a side cannot."""
        functions = lent_functions(self._ref.side.engine, self._dut.side.engine)
        if functions is None or not self._ref.side.has("replay"):
            return {}
        after = self._ref.side.read_state() or {}
        self._ref.side.write_state(state)
        plan = self._ref.run.plan(
            fields=tuple({key.field for key in keys}),
            replace=lambda key, read: tensors.get(key),
            borrow=functions,
        )
        entries = step_entries(self._ref.feed(visit.pos, visit.tokens[0] or 0, plan))
        self._ref.side.write_state(after)
        return entries

    def _ref_calls(
        self, visit: Visit, state: State, traced: frozenset[Key]
    ) -> Mapping[Key, tuple[Call, ...]]:
        """What the ref runs for the keys ``traced``: its step once more, after which it stands
        where it stood."""
        if not traced:
            return {}
        self._ref.side.write_state(state)
        plan = self._ref.run.plan(fields=(), trace=traced)
        return self._ref.feed(visit.pos, visit.tokens[0] or 0, plan).calls


def run_detail(key: Key, starts: tuple[Start, Start]) -> Detail:
    """The detail of ``key`` from a rerun of both sides up to it, as they are."""
    asked = frozenset({key})
    steps = []
    for start in starts:
        kept, traced = (asked if start.side.has(name) else () for name in ("capture", "trace"))
        plan = {"fields": (), "tensors": frozenset(kept), "trace": frozenset(traced)}
        steps.append(start.step_at(key.pos, **plan))
    elements = key_elements(key, steps[0].tensors, steps[1].tensors)
    return _detail(key, elements, [step.calls.get(key, ()) for step in steps], starts)


def _detail(
    key: Key,
    elements: Elements | None,
    calls: Sequence[Sequence[Call]],
    starts: tuple[Start, Start],
) -> Detail:
    """What ``calls`` of ref and dut, for ``key`` on equal inputs, say beside its elements."""
    ref, dut = calls
    engines = [start.side.engine for start in starts]
    functions = attribute_birth(key, with_arguments(ref, dut), *engines)
    return Detail(elements, _kernels(ref), _kernels(dut), functions)


class _Given:
    """Answers for each value that the dut makes with the ref's, where it has the same type.

    ``made``: types that the dut told in its run; a value it did not tell is looked at.
    """

    def __init__(self, tensors: Tensors, made: Entries) -> None:
        self.tensors, self.used = tensors, set[Key]()
        self._made = made

    def __call__(self, key: Key, read: Callable[[], np.ndarray]) -> np.ndarray | None:
        tensor = self.tensors.get(key)
        if tensor is None:
            return None
        told = self._made.get(key)
        made = told.type if told is not None and told.type is not None else _type(read())
        if made != _type(tensor):
            return None
        self.used.add(key)
        return tensor


def _type(array: np.ndarray) -> TensorType:
    return TensorType(dtype_name(array.dtype), array.shape)


def _kernels(calls: Sequence[Call]) -> list[str]:
    """The ops of ``calls``, each once, in the order they ran first."""
    return list(dict.fromkeys(call.op for call in calls))


def _lacking(starts: tuple[Start, Start]) -> str:
    """``ref lacks the capability 'state', dut lacks the capability 'replay'``, or ""."""
    pairs = zip(starts, NEEDS, strict=True)
    texts = [
        f"{role} lacks the capability {name!r}"
        for start, (role, names) in pairs
        for name in names
        if not start.side.has(name)
    ]
    return ", ".join(texts)
