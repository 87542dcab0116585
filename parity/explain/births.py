"""Where differences begin and what becomes of them: born, inherited, masked.

Read from the visits of a retrace along the dataflow. A key is *born* where the dut's op gives other
bytes on the ref's inputs, or, where it was not replayed, where it differs though every input is the
same. It is *inherited* where the replay gives the ref's bytes: its source is the first birthplace
in dataflow order among those that reach it through inputs that differ, without another birthplace
in between. It is *masked* where it is equal though an input differs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from parity.comparison.states import differing_rows, differing_weights
from parity.explain.dataflow import WHOLE_PARTS, Feeds, feeds_of
from parity.explain.drill import Start
from parity.explain.forcing import Detail, run_detail
from parity.explain.rerun import Visit, unlike
from parity.explain.retrace import Found
from parity.explain.unseen import Embedded, ask_rows, embedding_or, spanning, untold, weights_of
from parity.families import every_field, field_op
from parity.fnv import BASES, fnv1a64_array
from parity.keys import Key, KeyOrder
from parity.runs.run import Run
from parity.tree import (
    EMBEDDED,
    EMBEDDING,
    NOT_SEEN,
    TAP_LIES,
    Birth,
    Births,
    Cause,
    Elements,
    KeyRow,
    KeyState,
    Tree,
)

START = "start state"  # source of what a contaminated start brought
RERUNS = 2  # one of each side
BY_REPLAY = "all that reads it in layer 0 differs by replay, the same ops elsewhere do not"
ENOUGH = 2  # ops that read one embedding: one alone that differs may be wrong itself
_ORDER = KeyOrder()


class Origin(NamedTuple):
    """Where a difference comes from, with its place in dataflow order."""

    order: tuple[int, int, int, int]
    text: str


class Inputs(NamedTuple):
    """What is known of the inputs of a key. ``reached``: origins of those that differ, None for an
    unknown one; ``known``: whether all inputs were seen on both sides."""

    reached: list[Origin | None]
    known: bool

    @property
    def clean(self) -> bool:
        """Whether all inputs are the same."""
        return self.known and not self.reached

    @property
    def origin(self) -> Origin | None:
        """The first of the origins."""
        return min(filter(None, self.reached), default=None)


@dataclass(frozen=True)
class Born:
    """A birthplace: which visit shows it, and whether by replay. ``op``: what is wrong there, the
    op of its field where empty; ``evidence``: of its inputs, see ``parity.tree.Birth``."""

    key: Key
    visit: Visit
    replayed: bool
    clean: bool
    op: str = ""
    evidence: str = ""


class Flow:
    """The cause of every key of some visits.

    ``causes``: (cause, source) by key; ``born``: birthplaces in dataflow order; ``doubts``: why
    births may be missing. ``start_rows``: rows in which the states differ that both sides start
    from; ``variants``: those that run on either side; ``weights``: names of the weights that
    differ; ``fused``: the dut makes its steps of fused launches, and a forced step op by op;
    ``embedded``: what is known of the rows that both sides embed a token as.
    """

    def __init__(
        self,
        run: Run,
        start_rows: Mapping[str, Sequence[int]],
        variants: Collection[str],
        weights: Collection[str] = (),
        *,
        fused: bool = False,
        embedded: Embedded = lambda token: None,
    ) -> None:
        self.causes: dict[Key, tuple[str, str]] = {}
        self.born: list[Born] = []
        self.doubts: list[str] = []
        self._embedded = embedded
        self._weights = weights
        self._own_weights = any(name.startswith("layers.0.") for name in weights)
        self._run, self._start_rows, self._variants = run, start_rows, variants
        self._fused = fused
        self._origins: dict[Key, Origin | None] = {}  # of the keys that differ
        self._told: set[Key] = set()  # by both sides
        self._seen: set[int] = set()  # positions
        self._every = every_field(run.model.config)
        self._feeds: dict[tuple[int | None, str], Feeds] = {}

    def add(self, visit: Visit) -> None:
        """Follow the dataflow through the next position."""
        self._seen.add(visit.pos)
        before = len(self.born)
        for key in visit.keys:
            if key in visit.ref and key in visit.dut:
                self._told.add(key)
                self._judge(visit, key)
        self._find_embedding(visit, before)

    def _find_embedding(self, visit: Visit, before: int) -> None:
        """The embedding is no key: say of the births that read it whether they are its own.
        ``before``: how many births earlier positions have; their keys are not gone through."""
        told = [key for key in visit.keys if key.pos == visit.pos and key in self._told]
        readers = sorted((key for key in told if self._feeding(key).token), key=_ORDER)
        here = [one for one in self.born[before:] if one.key in readers]
        token = visit.tokens[0]
        if not here or token is None or visit.tokens[1] != token:
            return
        row, first = self._embedded(token), replace(here[0], clean=False)
        if row:
            self._merge(visit, before, here, replace(first, op=EMBEDDED, evidence=row))
            self._doubt_readers(here)
        elif self._by_replay(readers, self.born[before:]):
            self._merge(visit, before, here, replace(first, op=EMBEDDING, evidence=BY_REPLAY))
        elif row is None and not self._right_reader(visit, readers, here):
            self.born[before:] = [
                self._either(one, token) if one in here else one for one in self.born[before:]
            ]

    def _either(self, born: Born, token: int) -> Born:
        """A birth that may be the embedding's as well as the op's own."""
        evidence = f"{NOT_SEEN}: the {EMBEDDED} of token {token}, which is not dumped"
        return replace(born, clean=False, op=embedding_or(born.key.field), evidence=evidence)

    def _by_replay(self, readers: Sequence[Key], born: Sequence[Born]) -> bool:
        """Whether every key that reads the embedding is born by replay, and their ops are right in
        all other layers: then it differs, and not the ops. ``born``: at the position."""
        fields = {key.field for key in readers}
        of_fields = [one for one in born if one.key.field in fields]
        if len(readers) < ENOUGH or {one.key for one in of_fields} != set(readers):
            return False
        alone = self._run.model.config.layers < ENOUGH
        return not alone and not self._own_weights and all(one.replayed for one in of_fields)

    def _right_reader(self, visit: Visit, readers: Sequence[Key], here: Sequence[Born]) -> bool:
        """Whether an op that reads the embedding beside those births gave the ref's bytes by
        replay: then the embedding is the ref's."""
        born, forced = {one.key for one in here}, visit.forced or {}
        return any(key in forced and key not in born and not visit.departs(key) for key in readers)

    def _doubt_readers(self, here: Sequence[Born]) -> None:
        """What reads another embedding was not tried on the ref's: its own weights may tell."""
        for one in here:
            own = weights_of(one.key, self._weights, tied=False)
            if own:
                text = f"not tried on the ref's embedding, and its weights differ: {own[0]}"
                self._doubt(f"{one.key}: {text}")

    def _merge(self, visit: Visit, before: int, here: Sequence[Born], first: Born) -> None:
        """One birth, ``first``, in the place of ``here``, and the source of all that they were."""
        others = {one.key for one in here} - {first.key}
        born = [one for one in self.born[before:] if one.key not in others]
        self.born[before:] = [first if one.key == first.key else one for one in born]
        tags, tag = {key.tag for key in others}, first.key.tag
        for key in [key for key in visit.keys if key.pos == visit.pos and key in self._told]:
            cause, source = self.causes.get(key, ("", ""))
            if key in others:
                self.causes[key] = (Cause.INHERITED, tag)
            elif source in tags:
                self.causes[key] = (cause, tag)
            origin = self._origins.get(key)
            if origin is not None and origin.text in tags:
                self._origins[key] = Origin(_ORDER(first.key), tag)

    def _judge(self, visit: Visit, key: Key) -> None:
        feeds, differs = self._feeding(key), visit.differs(key)
        inputs = self._inputs(visit, key, feeds)
        replayed = visit.forced is not None and key in visit.forced
        if replayed and not _on_given(visit, feeds.keys):
            self._doubt(f"{key} was not replayed: not all its inputs are the ref's")
            replayed = False
        departs = replayed and visit.departs(key)
        if inputs.clean and replayed and departs != differs:
            text = "the dut gives other bytes on equal inputs, something else is read"
            if self._fused and differs:
                text = "op by op the dut gives the ref's bytes, its fused launches do not"
            self._doubt(f"{key}: {text}")
            departs = False
        born = departs or (differs and inputs.clean)
        if born:
            self.born.append(self._born(key, visit, departs, inputs.clean))
        if differs:
            own = Origin(_ORDER(key), key.tag) if born else None
            self._origins[key] = own or (inputs.origin if replayed else None)
        self._name(key, differs, born, replayed, inputs)

    def _born(self, key: Key, visit: Visit, replayed: bool, clean: bool) -> Born:
        unseen = untold(key, visit.ref, lambda one: self._feeding(one).keys)
        if clean or not unseen:
            return Born(key, visit, replayed, clean)
        return Born(key, visit, replayed, clean, *spanning(key, sorted(unseen, key=_ORDER)))

    def _name(self, key: Key, differs: bool, born: bool, replayed: bool, inputs: Inputs) -> None:
        source = inputs.origin.text if inputs.origin is not None else ""
        if differs and born:
            self.causes[key] = (Cause.BORN, "")
        elif differs and replayed:
            self.causes[key] = (Cause.INHERITED, source)
        elif not differs and inputs.reached:
            self.causes[key] = (Cause.MASKED, source)

    def _doubt(self, text: str) -> None:
        if not self.doubts:  # one is told: those after it may follow from it
            self.doubts.append(text)

    def _feeding(self, key: Key) -> Feeds:
        pos, layer, field = key
        found = self._feeds.get((layer, field))
        if found is None:
            place, config = Key(0, layer, field), self._run.model.config
            found = feeds_of(config, place, self._every, self._variants)
            self._feeds[layer, field] = found
        keys = tuple(Key(pos, feed.layer, feed.field) for feed in found.keys)
        return Feeds(keys, found.parts, found.token)

    def _inputs(self, visit: Visit, key: Key, feeds: Feeds) -> Inputs:
        known = feeds.known and all(feed in self._told for feed in feeds.keys)
        reached = [self._origins[feed] for feed in feeds.keys if feed in self._origins]
        if feeds.token and visit.tokens[0] != visit.tokens[1]:
            reached.append(Origin((key.pos, 0, 0, 0), f"token at t{key.pos}"))
        for part in feeds.parts:
            found = self._part(visit, Key(key.pos, key.layer, part))
            reached += found.reached
            known = known and found.known
        return Inputs(reached, known)

    def _part(self, visit: Visit, part: Key) -> Inputs:
        """What is known of a state part as the position of ``part`` began with it."""
        whole = part.field in WHOLE_PARTS
        if visit.rows is None:
            return self._part_by_keys(part, whole)
        rows = visit.rows.get(_name_of(part), ())
        if whole:
            return Inputs([self._row(part, part.pos - 1, min(rows))] if rows else [], True)
        return Inputs([self._row(part, row, row) for row in rows], True)

    def _part_by_keys(self, part: Key, whole: bool) -> Inputs:
        """The same without the states: by the keys of the positions that wrote it."""
        first = max(part.pos - 1, 0) if whole else 0
        keys = [part._replace(pos=pos) for pos in range(first, part.pos)]
        reached = [self._origins[key] for key in keys if key in self._origins]
        return Inputs(reached, all(key in self._told for key in keys))

    def _row(self, part: Key, pos: int, row: int) -> Origin | None:
        """Where the difference in a row comes from that position ``pos`` wrote; None: not known."""
        key = Key(pos, part.layer, part.field)
        if key in self._origins:
            return self._origins[key]
        name = _name_of(part)
        at_start = pos < self._run.start <= part.pos and pos not in self._seen
        if at_start and row in self._start_rows.get(name, ()):
            return Origin((-1, 0, 0, 0), START)
        if key not in self._told and (pos in self._seen or part.field not in self._run.fields):
            return None
        return Origin(_ORDER(key), f"state part {name} row {row}")


def _on_given(visit: Visit, feeds: Collection[Key]) -> bool:
    """Whether the forced op read the ref's values: given, or made alike. A field that the ref does
    not tell is part of the op of the next one."""
    forced = visit.forced or {}
    for feed in feeds:
        if feed not in visit.given and feed in visit.ref:
            made = forced.get(feed)
            if made is None or unlike(visit.ref[feed], made):
                return False
    return True


def name_births(
    tree: Tree,
    found: Found,
    starts: tuple[Start, Start],
    layer: tuple[int, int | None] | None = None,
) -> None:
    """Put births and causes into ``tree``. ``layer``: (position, layer) that was searched, None for
    all. Nothing is put where no key differs, dumped or not."""
    weights = differing_weights(*(start.side.weights for start in starts))
    fused = tree.dut.get("launches", "").startswith("fused")
    run, variants = starts[0].run, _variants(tree)
    asked = ask_rows(starts)
    flow = Flow(run, _start_rows(starts), variants, weights, fused=fused, embedded=asked)
    for visit in found.visits:
        flow.add(visit)
    if all(visit.equal for visit in found.visits) and (found.visits or not found.lacking):
        return
    born = [one for one in flow.born if layer in (None, (one.key.pos, one.key.layer))]
    states = {row.key: row.state for row in tree.keys}
    details = found.forcing.details or _first_detail(born, starts)
    reasons = [found.forcing.lacking, *found.lacking, *flow.doubts]
    if layer is not None:
        reasons.append(
            f"one layer was searched, {layer_tag(layer)} (parity diff without --bisect: all)"
        )
    lying = _lying_tap(tree, found, details)
    if lying:
        reasons.insert(0, lying)
        born = [one for one in born if _moved(details.get(one.key))]
        tree.reason = tree.reason or lying
    else:
        tree.keys = [_with_cause(row, flow.causes) for row in tree.keys]
    reason = "; ".join(filter(None, reasons))
    tree.births = Births(
        [_birth(one, run, states, details.get(one.key), weights) for one in born],
        complete=not reason,
        reason=reason,
        reruns=RERUNS,
        replays=found.replays,
        kernels=dict(found.forcing.kernels),
        sources=dict(sorted(found.forcing.sources.items())),
    )


def _lying_tap(tree: Tree, found: Found, details: Mapping[Key, Detail]) -> str:
    """What to say where a birth's or the first key's tensors are equal and its digests are not: no
    digest of such a side tells where a difference begins. Empty where there is none."""
    shown = [tree.elements, *(detail.elements for detail in details.values())]
    if not any(one is not None and _equal_values(one) for one in shown):
        return ""
    return f"{TAP_LIES}: the tap of {_liar(tree, found)} does not report what it computes"


def _liar(tree: Tree, found: Found) -> str:
    """The side whose digest of the first key is not that of its tensor; the dut where the ref's is,
    or is not known."""
    key = Key.parse(tree.first or "")
    visit = found.visit(key.pos)
    if visit is not None and key in found.tensors[0] and key in visit.ref:
        basis = BASES[tree.ref.get("hash", "fnv1a64")]
        if fnv1a64_array(found.tensors[0][key], basis) != visit.ref[key].digest:
            return "ref"
    return "dut"


def _equal_values(elements: Elements) -> bool:
    return elements.total > 0 and not elements.differ


def _moved(detail: Detail | None) -> bool:
    """Whether the tensors themselves are known to differ."""
    return detail is not None and detail.elements is not None and detail.elements.differ > 0


def layer_tag(layer: tuple[int, int | None]) -> str:
    """``t4_l2``, or ``t4`` for what stands after the last layer."""
    return Key(*layer, "x").tag.removesuffix("_x")


def _birth(
    born: Born,
    run: Run,
    states: Mapping[str, str],
    detail: Detail | None,
    weights: Collection[str],
) -> Birth:
    key, visit = born.key, born.visit
    dumped = key.field in run.fields and (run.dump_prefill or key.pos >= run.start)
    made = visit.forced if born.replayed and visit.forced is not None else visit.dut
    state = KeyState.DIFFERS if visit.differs(key) else KeyState.SAME
    return Birth(
        key=key.tag,
        op=born.op or field_op(key.field),
        how="replay" if born.replayed else "inputs",
        dumped=dumped,
        state=states.get(key.tag, state) if dumped else "",
        clean=born.clean,
        ref=visit.ref[key].value_text(),
        dut=made[key].value_text(),
        ref_kernels=detail.ref_kernels if detail else [],
        dut_kernels=detail.dut_kernels if detail else [],
        elements=detail.elements if detail else None,
        functions=detail.functions if detail else [],
        explained=detail.explained if detail else None,
        evidence=born.evidence,
        weights=weights_of(key, weights, born.op, tied=run.model.config.tied),
    )


def _first_detail(born: Sequence[Born], starts: tuple[Start, Start]) -> dict[Key, Detail]:
    """The detail of the first birth where no step was forced: its inputs are the same anyway."""
    return {one.key: run_detail(one.key, starts) for one in born[:1]}


def _with_cause(row: KeyRow, causes: Mapping[Key, tuple[str, str]]) -> KeyRow:
    if row.state not in (KeyState.SAME, KeyState.DIFFERS):
        return row
    cause, source = causes.get(Key.parse(row.key), ("", ""))
    return replace(row, cause=cause, source=source) if cause else row


def _start_rows(starts: tuple[Start, Start]) -> dict[str, list[int]]:
    ref, dut = (start.state for start in starts)
    return {} if ref is None or dut is None else differing_rows(ref, dut)


def _variants(tree: Tree) -> set[str]:
    """The variants of either side, from the headers."""
    return {name for side in (tree.ref, tree.dut) for name in side.get("variants", "").split(",")}


def _name_of(part: Key) -> str:
    """The state's name of a part: ``l3_ks``."""
    return f"l{part.layer}_{part.field}"
