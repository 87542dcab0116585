"""Compare two dumps, key by key in dataflow order: presence, dtype, shape and digest.

The first divergence is the lowest key in which any of the four differs. Nothing else decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat

import numpy as np

from parity.collector import collector_paused
from parity.comparison.matching import (
    DIFFERS,
    EXTRA,
    MISSING,
    NOT_COMPARABLE,
    SAME,
    STATES,
    Apart,
    Match,
    Part,
    match_keys,
)
from parity.dump import PARTIAL, Dump
from parity.dumps.greedy import GreedyMatch, match_greedy
from parity.errors import InputError
from parity.keys import Key
from parity.profiles import Profile
from parity.status import ExitStatus, Level, Verdict
from parity.tree import UNTYPED, Counts, KeyRow, Tree

# Above this many keys a tree lists only the keys that are not the same and the first one's step.
ROWS_LIMIT = 100_000
_EXPLAINING = ("model", "weights", "tokens", "prefill")  # headers whose difference explains keys


def compare_dumps(
    ref: Dump,
    dut: Dump,
    *,
    level_asked: Level = Level.BIT,
    partial: bool = False,
    apart: Apart | None = None,
) -> Tree:
    """The divergence tree of ``dut`` against ``ref``; costs time in proportion to their keys.

    Keys are matched inside the segment of the same name. Zero keys compared is not_run. From a
    value that is not finite on, nothing is comparable (contract 1.10). ``apart`` names rows that
    have no counterpart to be compared with; ``partial`` admits dumps with that header, whose run
    or file ended early: what they lack from there on is not comparable. Where nothing differs, the
    verdict of either is not_run. Raises InputError when the two were hashed differently, a
    segment holds a key twice, a greedy header is malformed, or a dump is partial unasked.
    """
    if not partial:
        _refuse_partial(ref, dut)
    match, greedy = match_keys(ref, dut, apart), match_greedy(ref, dut)
    counts = _counts(match)
    verdict, first, reason = _verdict(match, counts, greedy)
    if verdict is Verdict.SAME and (counts.not_comparable or _partial_sides(ref, dut)):
        verdict, reason = Verdict.NOT_RUN, _incomplete(counts, _partial_sides(ref, dut))
    return Tree(
        verdict=verdict,
        first=first,
        counts=counts,
        level=_level(verdict, match, greedy),
        level_asked=level_asked,
        ref={**ref.header, "spec": ref.source},
        dut={**dut.header, "spec": dut.source},
        reason=reason,
        keys=_rows(match),
        greedy=greedy.choices,
        notes=[*_header_notes(ref, dut), *_match_notes(match), *filter(None, [greedy.note])],
    )


def exit_status(tree: Tree) -> ExitStatus:
    """What a process that ends with ``tree`` returns.

    SAME (0) needs the level asked for, at least one key compared, and every key of either side
    compared: a missing, an extra or a not comparable key is DIVERGED (1) at any level. Of a pair
    that was judged by its profile (``Profile.judged``) a field that a side never has is no fault,
    but the verdict alone decides.
    """
    if tree.verdict in (Verdict.NOT_RUN, Verdict.UNSTABLE):
        return tree.verdict.exit_status
    counts = tree.counts
    if tree.profile is not None and tree.profile.judged:
        return _judged_status(tree, tree.profile)
    if tree.verdict is Verdict.DIVERGED and (counts.missing or counts.extra):
        return ExitStatus.DIVERGED  # also where it is the first key of a digest tree
    if not counts.same + counts.differ:
        return ExitStatus.NOT_RUN
    if counts.missing or counts.extra or counts.not_comparable:
        return ExitStatus.DIVERGED
    return ExitStatus.SAME if tree.level.satisfies(tree.level_asked) else ExitStatus.DIVERGED


def _judged_status(tree: Tree, profile: Profile) -> ExitStatus:
    """SAME needs the verdict and everything it rests on."""
    counts = tree.counts
    if not counts.same + counts.differ:
        return ExitStatus.NOT_RUN
    lone = profile.lone_keys("ref"), profile.lone_keys("dut")
    whole = (counts.missing, counts.extra) == lone and not counts.not_comparable
    enough = tree.level.satisfies(tree.level_asked) and not profile.outside
    agrees = tree.verdict is Verdict.SAME and whole and enough
    return ExitStatus.SAME if agrees else ExitStatus.DIVERGED


def _partial_sides(ref: Dump, dut: Dump) -> list[str]:
    return [role for role, side in (("ref", ref), ("dut", dut)) if PARTIAL in side.header]


def _refuse_partial(ref: Dump, dut: Dump) -> None:
    for side in (ref, dut):
        if PARTIAL in side.header:
            raise InputError(
                f"{side.source}: a partial dump: {side.header[PARTIAL]}",
                "write it again, or let parity compare --partial compare what it holds",
            )


def _counts(match: Match) -> Counts:
    sides = [(len(part.refs), len(part.duts)) for part in match.parts]
    return Counts(
        ref=sum(ref for ref, _ in sides),
        dut=sum(dut for _, dut in sides),
        same=match.count(SAME),
        differ=match.count(DIFFERS),
        missing=match.count(MISSING),
        extra=match.count(EXTRA),
        not_comparable=match.count(NOT_COMPARABLE),
    )


def _verdict(match: Match, counts: Counts, greedy: GreedyMatch) -> tuple[Verdict, str | None, str]:
    """(verdict, tag of the first divergence, reason)."""
    if not counts.same + counts.differ:
        return Verdict.NOT_RUN, None, _nothing(counts)
    if match.first is not None:
        part, at = match.first
        return Verdict.DIVERGED, part.key(at).tag, ""
    if match.stop is not None:
        return Verdict.NOT_RUN, None, f"not finite with the same bytes: {_stop_text(*match.stop)}"
    if greedy.flip is not None:
        pos, ref, dut = greedy.flip
        reason = f"greedy choice differs at equal logits: position {pos}, ref {ref}, dut {dut}"
        return Verdict.DIVERGED, Key(pos, None, "logits").tag, reason
    return Verdict.SAME, None, ""


def _incomplete(counts: Counts, partial: list[str]) -> str:
    """Why a comparison that found no difference is not green."""
    text = f"{counts.same:,} keys are the same, {counts.not_comparable:,} are not comparable"
    return f"{text}; {' and '.join(partial)} partial" if partial else text


def _nothing(counts: Counts) -> str:
    empty = [side for side, keys in (("ref", counts.ref), ("dut", counts.dut)) if not keys]
    if empty:
        return f"nothing compared: no keys in {' and '.join(empty)}"
    return f"nothing compared: no key in common (ref {counts.ref:,}, dut {counts.dut:,})"


def _stop_text(part: Part, at: int) -> str:
    """Where the run ceased to be finite, e.g. ``t0_l1_attn (ref 3 from index 7, dut 3 ...)``."""
    [(key, *sides)] = part.entries(np.array([at]))
    found = [
        f"{side} {entry.nonfinite[0]} from index {entry.nonfinite[1]}"
        for side, entry in zip(("ref", "dut"), sides, strict=True)
        if entry and entry.nonfinite
    ]
    return f"{key} ({', '.join(found)})"


def _level(verdict: Verdict, match: Match, greedy: GreedyMatch) -> Level:
    """The strictest level that holds, provided that no weaker one is seen to fail."""
    if verdict is Verdict.SAME:
        return Level.BIT
    if verdict is Verdict.NOT_RUN or match.stop is not None or greedy.flip is not None:
        return Level.NONE
    states = [part.states_of(part.ranks.having(_is_logits)) for part in match.parts]
    logits = np.concatenate(states)
    if len(logits) and (logits == SAME).all():
        return Level.LOGITS
    return Level.GREEDY if greedy.equal else Level.NONE


def _is_logits(place: Key) -> bool:
    return place.layer is None and place.field == "logits"


def _rows(match: Match) -> list[KeyRow]:
    chosen: Iterable[tuple[Part, np.ndarray]] = _chosen(match)
    if len(match) <= ROWS_LIMIT:
        chosen = ((part, np.arange(len(part))) for part in match.parts)
    with collector_paused():
        return [row for part, listed in chosen for row in _part_rows(part, listed)]


def _chosen(match: Match) -> Iterator[tuple[Part, np.ndarray]]:
    """Of a large match: all keys of the first one's step, and others that are not the same."""
    left = ROWS_LIMIT
    for part in match.parts:
        wanted = part.states != SAME
        begin = end = 0
        if match.first is not None and match.first[0] is part:
            begin, end = part.step_of(match.first[1])
            wanted[begin:end] = True
        listed = np.flatnonzero(wanted)
        late = listed[max(left, 0) :]
        in_step = late[(late >= begin) & (late < end)]
        yield part, np.concatenate([listed[: max(left, 0)], in_step])
        left -= len(listed)


def _part_rows(part: Part, listed: np.ndarray) -> Iterator[KeyRow]:
    states = [STATES[state] for state in part.states[listed].tolist()]
    keys, refs, duts = part.texts(listed)
    return map(KeyRow, keys, states, refs, duts, repeat(part.segment))


def _header_notes(ref: Dump, dut: Dump) -> Iterator[str]:
    for name in _EXPLAINING:
        ref_value, dut_value = ref.header.get(name), dut.header.get(name)
        if ref_value is not None and dut_value is not None and ref_value != dut_value:
            yield f"{name} differ: ref {ref_value} dut {dut_value}"
    for role, side in (("ref", ref), ("dut", dut)):
        if PARTIAL in side.header:
            yield f"{role} is partial: {side.header[PARTIAL]}"


def _match_notes(match: Match) -> Iterator[str]:
    if match.first is not None and match.first[0].segment:
        yield f"the first divergence is in segment {match.first[0].segment}"
    untyped = [part.untyped() for part in match.parts]
    for side, bare in (("ref", sum(n for n, _ in untyped)), ("dut", sum(n for _, n in untyped))):
        if bare:
            yield f"{UNTYPED} in {side} ({bare:,} keys): digest alone compared"
    for part in match.parts:
        if part.reordered:
            where = f" in segment {part.segment}" if part.segment else ""
            yield f"line order differs{where}: compared by key, in dataflow order"
    if match.stop is not None:
        yield f"not finite at {_stop_text(*match.stop)}: the keys after it are not comparable"
    if len(match) > ROWS_LIMIT:
        yield f"more than {ROWS_LIMIT:,} keys: those that are the same are counted, not listed"
