"""The profile of two engines: both run again, one step at a time, with the values of every dumped
key; the values of one step are held, of the rest sums and extremes.

A pair of which one side computes in another order of addition (``order`` of the engine is not
CONTRACT) cannot be asked for equal bits. Where no stricter level was typed it is judged here: the
greedy choices must agree, every field must lie within the bound of ``comparison.profile``, both
sides must repeat themselves, and no key may be missing but those of fields that a side never has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from parity.comparison.matching import dump_order
from parity.comparison.profile import FieldTally, coarsest
from parity.comparison.states import differing_weights
from parity.dump import Dump
from parity.errors import NotRunError
from parity.explain.drill import Start, key_elements
from parity.explain.margin import Choices, measure
from parity.explain.rerun import Walker
from parity.keys import Key
from parity.profiles import UNEXPECTED, LoneField, Profile, ProfileRow, place_name
from parity.protocol import CONTRACT, Step
from parity.runs.run import Side, SideRun
from parity.runs.stability import RUNS, call_unstable
from parity.status import Verdict
from parity.tree import KeyState, Margin, Stability, Tree

_TABLE = "inv_freq"  # contract 1.7
Place = tuple[int | None, str]  # layer and field
Pair = tuple[Start, Start]
Dumps = tuple[Dump, Dump]


def order_of(side: Side) -> str:
    """The order of addition that the engine of a side computes in."""
    return str(getattr(side.engine, "order", CONTRACT))


def bits_expected(ref: Side, dut: Side) -> bool:
    """Whether equal bits can be asked of the pair: not where exactly one side is an engine of
    another arithmetic."""
    return (order_of(ref) == CONTRACT) == (order_of(dut) == CONTRACT)


def add_profile(tree: Tree, starts: Pair, dumps: Dumps) -> None:
    """Put the profile of a pair into its tree; it changes no verdict."""
    walked = _walk(starts, dumps, {})
    tree.profile = walked.profile(starts, dumps, judged=False)


def judge(
    tree: Tree, starts: Pair, runs: tuple[SideRun, SideRun], flips: Mapping[int, Choices]
) -> Profile | None:
    """Give a pair whose bits differ, as was to be expected, the verdict of its profile; the profile
    where nothing speaks against the pair. ``flips``: by position, the two choices where they
    differ."""
    dumps = runs[0].dump, runs[1].dump
    walked = _walk(starts, dumps, flips)
    if walked.unlike.side:
        call_unstable(tree, walked.unlike)
        return None
    found = walked.profile(starts, dumps, judged=True)
    tree.profile, tree.stability = found, walked.unlike
    tree.margins = [walked.margins[pos] for pos in sorted(walked.margins)]
    tree.notes += [*_notes(found), *_own_tables(*starts)]
    reason, first = _problem(tree, found, starts, runs)
    if reason:
        tree.verdict, tree.reason = Verdict.DIVERGED, f"{UNEXPECTED}, {reason}"
        tree.first = first
        _show(tree, starts)
        return None
    tree.verdict, tree.reason = Verdict.SAME, ""
    return found


def _problem(
    tree: Tree, found: Profile, starts: Pair, runs: tuple[SideRun, SideRun]
) -> tuple[str, str | None]:
    """Why a judged pair is red, and the key to show; "" where nothing speaks against it."""
    counts, flip = tree.counts, next((pos for pos, *two in tree.greedy if two[0] != two[1]), None)
    if found.outside:
        return "outside the bound", found.outside
    if flip is not None:
        return "another greedy choice", Key(flip, None, "logits").tag
    weights = _other_weights(*starts)
    if weights:
        return weights, None
    lone = found.lone_keys("ref"), found.lone_keys("dut")
    if (counts.missing, counts.extra) != lone:
        return "keys are missing of fields that both sides have", _first_lone(tree, found)
    if counts.not_comparable:
        return f"{counts.not_comparable:,} keys are not comparable", tree.first
    if not tree.greedy or runs[0].choices.keys() != runs[1].choices.keys():
        return "the greedy choices were not recorded on both sides", None
    if found.row("logits") is None:
        return "no logits were compared", None
    return "", None


def _other_weights(ref: Start, dut: Start) -> str:
    """Weights that no rounding explains: other bytes, where every tensor has one type on both
    sides. Where one was converted others may have been made of it. The rotary table is computed:
    its last bits are arithmetic, and the fields that it turns are judged."""
    held, other = ref.side.weights, dut.side.weights
    names = [name for name in differing_weights(held, other) if name != _TABLE]
    kinds = [[side[name][0] if name in side else None for side in (held, other)] for name in names]
    if not names or not held or not other or any(one != two for one, two in kinds):
        return ""
    tensors = "1 tensor" if len(names) == 1 else f"{len(names):,} tensors"
    return f"weights differ in {tensors}, first {names[0]}"


def _own_tables(ref: Start, dut: Start) -> Iterator[str]:
    if _TABLE in differing_weights(ref.side.weights, dut.side.weights):
        yield f"{_TABLE} differs: each side computes its own, of no file; judged by k and qrope"


def _first_lone(tree: Tree, found: Profile) -> str | None:
    """The first key that one side alone has, of a field that both have."""
    lone = {one.name for one in found.lone}
    for row in tree.keys:
        key = Key.of_name(row.key)
        if (
            row.state in (KeyState.MISSING, KeyState.EXTRA)
            and place_name(key.layer, key.field) not in lone
        ):
            return row.key
    return tree.first


def _show(tree: Tree, starts: Pair) -> None:
    """The elements of the key that the verdict names."""
    if tree.first is None:
        return
    key = Key.parse(tree.first)
    steps = [_step_at(start, key) for start in starts]
    tree.elements = key_elements(key, *(step.tensors for step in steps))


def _step_at(start: Start, key: Key) -> Step:
    """The step of a key as the run made it, with the key's value; of a prompt of which nothing was
    dumped only logits are asked for, and none is kept."""
    plan = {"tensors": frozenset({key})}
    if key.pos >= start.run.start or order_of(start.side) == CONTRACT:
        return start.step_at(key.pos, **plan)
    start.side.engine.reset()
    return start.side.engine.prefill(start.run.prompt, start.run.plan(**plan))[key.pos]


def _notes(found: Profile) -> Iterator[str]:
    for side in ("ref", "dut"):
        fields = list(dict.fromkeys(one.name for one in found.lone if one.side == side))
        if fields:
            few = ", ".join(fields[:8]) + (f", {len(fields) - 8:,} more" if fields[8:] else "")
            yield f"only the {side} has {few} ({found.lone_keys(side):,} keys, not judged)"
    pairs = {(row.ref_dtype, row.dut_dtype) for row in found.rows}
    for ref, dut in sorted(pair for pair in pairs if pair[0] != pair[1]):
        yield f"dtypes differ (ref {ref}, dut {dut}): measured with both widened exactly"


# --- the walk ------------------------------------------------------------------------------------


@dataclass
class _Walked:
    """What both reruns showed. ``unlike``: names the side that is not repeatable, if one is."""

    tallies: dict[Place, FieldTally] = field(default_factory=dict)
    positions: int = 0
    margins: dict[int, Margin] = field(default_factory=dict)
    unlike: Stability = field(default_factory=lambda: Stability(RUNS))

    def profile(self, starts: Pair, dumps: Dumps, *, judged: bool) -> Profile:
        """All of it as data, in dataflow order."""
        order = dump_order(*dumps)
        places = sorted(self.tallies, key=lambda place: order(Key(0, *place)))
        tallies = [self.tallies[place] for place in places]
        rows = [tally.row() for tally in tallies]
        arithmetic = coarsest(name for row in rows for name in (row.ref_dtype, row.dut_dtype))
        if judged:
            config = starts[0].run.model.config
            rows = [tally.judged(config, arithmetic) for tally in tallies]
        outside = [Key.parse(row.outside) for row in rows if row.outside]
        worst = max(rows, key=_nearness, default=None)
        return Profile(
            positions=self.positions,
            rows=rows,
            lone=_lone_fields(dumps),
            judged=judged,
            arithmetic=arithmetic,
            worst="" if worst is None else worst.name,
            outside=min(outside, key=order).tag if outside else "",
        )


def _nearness(row: ProfileRow) -> tuple[float, float]:
    """How near a row is to its bound, or beyond it; without a bound, how far its sides are."""
    apart = float("inf") if row.relative is None else row.relative
    if row.unmeasured or row.nonfinite:
        apart = float("inf")
    return (apart / row.bound if row.bound else apart, apart)


def _lone_fields(dumps: Dumps) -> list[LoneField]:
    """Fields of a layer that one side has nowhere, in the other's order."""
    sides: list[dict[str, int]] = []
    for dump in dumps:
        counts: dict[str, int] = {}
        for entry in dump.entries:
            name = place_name(entry.key.layer, entry.key.field)
            counts[name] = counts.get(name, 0) + 1
        sides.append(counts)
    pairs = (("ref", sides[0], sides[1]), ("dut", sides[1], sides[0]))
    return [
        LoneField(role, name, count)
        for role, mine, other in pairs
        for name, count in mine.items()
        if name not in other
    ]


class Again(Walker):
    """The second run of one side. An engine whose prefill is one forward makes the prompt in one
    again, anew for every position, since another chunking would give it other bits."""

    def step(self, pos: int, **plan: object) -> Step | None:
        if pos >= self.run.start or order_of(self.side) == CONTRACT:
            return super().step(pos, **plan)
        self.side.engine.reset()
        steps = self.side.engine.prefill(self.run.prompt, self.run.plan(**plan))
        told = self._told(steps[pos])
        self._latest = told.select(told.pos == pos)
        self._again.add(self._latest)
        return steps[pos]


def _walk(starts: Pair, dumps: Dumps, flips: Mapping[int, Choices]) -> _Walked:
    """Make every dumped step of both sides again and measure what they give; NotRunError where a
    side cannot give its values."""
    for start in starts:
        if not start.side.has("capture"):
            raise NotRunError(
                f"{start.side.spec} lacks the capability 'capture': nothing can be measured",
                "leave --profile out, or ask for --level bit",
            )
    walked, run = _Walked(), starts[0].run
    ref, dut = (Again(start, dump) for start, dump in zip(starts, dumps, strict=True))
    common = _common_keys(dumps)
    begin = 0 if run.dump_prefill else run.start
    for walker in (ref, dut):
        walker.go_to(begin)
    for pos in range(begin, _parting(ref.tokens, dut.tokens)):
        steps = [walker.step(pos, tensors=common.get(pos, frozenset())) for walker in (ref, dut)]
        for walker in (ref, dut):
            if (key := walker.unlike(pos)) is not None:
                walked.unlike = walker.unstable_key(key)
                return walked
        if steps[0] is not None and steps[1] is not None:
            _measure(walked, common.get(pos, frozenset()), steps[0], steps[1])
            if pos in flips:
                logits = steps[0].logits, steps[1].logits
                walked.margins[pos] = measure(pos, flips[pos], *logits)
    _margins_before(walked, starts, flips, begin)
    return walked


def _parting(ref: list[int], dut: list[int]) -> int:
    """The position from which on the sides are not fed the same tokens."""
    pairs = zip(ref, dut, strict=False)
    shorter = min(len(ref), len(dut))
    return next((pos for pos, (one, other) in enumerate(pairs) if one != other), shorter)


def _common_keys(dumps: Dumps) -> dict[int, frozenset[Key]]:
    """By position the keys that both sides told."""
    told = [{entry.key for entry in dump.entries} for dump in dumps]
    found: dict[int, set[Key]] = {}
    for key in told[0] & told[1]:
        found.setdefault(key.pos, set()).add(key)
    return {pos: frozenset(keys) for pos, keys in found.items()}


def _measure(walked: _Walked, keys: frozenset[Key], ref: Step, dut: Step) -> None:
    walked.positions += 1
    for key in keys:
        place = key.layer, key.field
        tally = walked.tallies.setdefault(place, FieldTally(*place))
        if key in ref.tensors and key in dut.tensors:
            tally.add(key, ref.tensors[key], dut.tensors[key])
        else:
            tally.lost(key)


def _margins_before(
    walked: _Walked, starts: Pair, flips: Mapping[int, Choices], begin: int
) -> None:
    """The margin of a flip at the last position of a prompt, of which nothing was dumped."""
    for pos in (pos for pos in flips if pos < begin):
        for start in starts:
            start.side.engine.reset()
        ref, dut = (start.side.engine.prefill(start.run.prompt)[-1].logits for start in starts)
        walked.margins[pos] = measure(pos, flips[pos], ref, dut)
