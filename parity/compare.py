"""Compare two dumps, key by key in dataflow order: presence, dtype, shape and digest.

The first divergence is the lowest key in which any of the four differs. Nothing else decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from parity.collector import collector_paused
from parity.dump import MAIN, Dump, Entry
from parity.errors import InputError
from parity.greedy import GreedyMatch, match_greedy
from parity.keys import Key, KeyOrder
from parity.status import ExitStatus, Level, Verdict
from parity.tree import UNTYPED, Counts, KeyRow, KeyState, Tree

# Above this many keys a tree lists only the keys that are not the same and the first one's step.
ROWS_LIMIT = 100_000
_EXPLAINING = ("model", "weights", "tokens", "prefill")  # headers whose difference explains keys


_NO_FAULT = (KeyState.SAME, KeyState.NOT_COMPARABLE)
_Entries = dict[Key, Entry]


@dataclass
class Match:
    """The keys of both sides in dataflow order, segment by segment; the lists run in parallel.

    ``first``: index of the first key that is not the same; ``stop``: index of the first key that
    is not finite on a side, after which nothing is comparable. ``reordered``: segments whose
    common keys stand in another order in the dut.
    """

    segments: list[str] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    refs: list[Entry | None] = field(default_factory=list)
    duts: list[Entry | None] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    first: int | None = None
    stop: int | None = None
    reordered: list[str] = field(default_factory=list)

    def add(self, segment: str, keys: list[Key], sides: tuple[_Entries, _Entries]) -> None:
        """Append the keys of one segment, in order, and judge each."""
        begin = len(self.keys)
        refs, duts = (list(map(side.get, keys)) for side in sides)
        self.segments += [segment] * len(keys)
        self.keys += keys
        self.refs += refs
        self.duts += duts
        self.states += map(_state, refs, duts)
        if self.stop is None:
            self.stop = next(
                (begin + i for i, pair in enumerate(zip(refs, duts, strict=True)) if _stops(*pair)),
                None,
            )
        if self.stop is not None:
            after = max(begin, self.stop + 1)
            self.states[after:] = [KeyState.NOT_COMPARABLE] * (len(self.states) - after)
        if self.first is None:
            states = enumerate(self.states[begin:], begin)
            self.first = next((i for i, state in states if state not in _NO_FAULT), None)


def compare_dumps(ref: Dump, dut: Dump, *, level_asked: Level = Level.BIT) -> Tree:
    """The divergence tree of ``dut`` against ``ref``; costs time in proportion to their keys.

    Keys are matched inside the segment of the same name. Zero keys compared is not_run. From a
    value that is not finite on, nothing is comparable (contract 1.10). Raises InputError when the
    two were hashed differently, a segment holds a key twice or a greedy header is malformed.
    """
    match, greedy = match_keys(ref, dut), match_greedy(ref, dut)
    counts = _counts(match)
    verdict, first, reason = _verdict(match, counts, greedy)
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
    compared: a missing, an extra or a not comparable key is DIVERGED (1) at any level.
    """
    if tree.verdict in (Verdict.NOT_RUN, Verdict.UNSTABLE):
        return tree.verdict.exit_status
    counts = tree.counts
    if not counts.same + counts.differ:
        return ExitStatus.NOT_RUN
    if counts.missing or counts.extra or counts.not_comparable:
        return ExitStatus.DIVERGED
    return ExitStatus.SAME if tree.level.satisfies(tree.level_asked) else ExitStatus.DIVERGED


def match_keys(ref: Dump, dut: Dump) -> Match:
    """Match the keys of two dumps and judge each. Raises InputError as compare_dumps does."""
    _check_hashes(ref, dut)
    match = Match()
    with collector_paused():
        order = dump_order(ref, dut)
        for segment in segment_names(ref, dut):
            refs, duts = entries_by_key(ref, segment), entries_by_key(dut, segment)
            if _reordered(refs, duts):
                match.reordered.append(segment)
            match.add(segment, sorted(refs | duts, key=order), (refs, duts))
    return match


def dump_order(ref: Dump, dut: Dump) -> KeyOrder:
    """The dataflow order of the keys of both dumps."""
    return KeyOrder(*((entry.key for entry in side.entries) for side in (ref, dut)))


def segment_names(ref: Dump, dut: Dump) -> list[str]:
    """Segments in the order they are compared: the unnamed, the ref's, the dut's own."""
    return sorted(ref.segments | dut.segments, key=lambda name: name != MAIN)


def _check_hashes(ref: Dump, dut: Dump) -> None:
    if ref.hash_name != dut.hash_name:
        raise InputError(
            f"hashes differ: {ref.source} has {ref.hash_name}, {dut.source} has {dut.hash_name}",
            "write one of the two again, with the same --hash",
        )


def entries_by_key(dump: Dump, segment: str) -> _Entries:
    """One segment's entries by key, in file order; raises InputError for a key given twice."""
    entries = dump.segments.get(segment, [])
    by_key = {entry.key: entry for entry in entries}
    if len(by_key) != len(entries):
        counted = Counter(entry.key for entry in entries)
        twice = next(key for key, count in counted.items() if count > 1)
        raise InputError(
            f"{dump.source}: key {twice} appears twice in its segment",
            "write the dump again, with one line for each key",
        )
    return by_key


def _reordered(refs: _Entries, duts: _Entries) -> bool:
    if list(refs) == list(duts):
        return False
    return [key for key in refs if key in duts] != [key for key in duts if key in refs]


def _state(ref: Entry | None, dut: Entry | None) -> str:
    if dut is None:
        return KeyState.MISSING
    if ref is None:
        return KeyState.EXTRA
    same_type = ref.type is None or dut.type is None or ref.type == dut.type
    return KeyState.SAME if same_type and ref.digest == dut.digest else KeyState.DIFFERS


def _stops(ref: Entry | None, dut: Entry | None) -> bool:
    """Whether a side is not finite here: its run ends with this step."""
    return bool((ref and ref.nonfinite) or (dut and dut.nonfinite))


def _counts(match: Match) -> Counts:
    states = Counter(match.states)
    return Counts(
        ref=len(match.refs) - match.refs.count(None),
        dut=len(match.duts) - match.duts.count(None),
        same=states[KeyState.SAME],
        differ=states[KeyState.DIFFERS],
        missing=states[KeyState.MISSING],
        extra=states[KeyState.EXTRA],
        not_comparable=states[KeyState.NOT_COMPARABLE],
    )


def _verdict(match: Match, counts: Counts, greedy: GreedyMatch) -> tuple[Verdict, str | None, str]:
    """(verdict, tag of the first divergence, reason)."""
    if not counts.same + counts.differ:
        return Verdict.NOT_RUN, None, _nothing(counts)
    if match.first is not None:
        return Verdict.DIVERGED, match.keys[match.first].tag, ""
    if match.stop is not None:
        return Verdict.NOT_RUN, None, f"not finite with the same bytes: {_stop_text(match)}"
    if greedy.flip is not None:
        pos, ref, dut = greedy.flip
        reason = f"greedy choice differs at equal logits: position {pos}, ref {ref}, dut {dut}"
        return Verdict.DIVERGED, Key(pos, None, "logits").tag, reason
    return Verdict.SAME, None, ""


def _nothing(counts: Counts) -> str:
    empty = [side for side, keys in (("ref", counts.ref), ("dut", counts.dut)) if not keys]
    if empty:
        return f"nothing compared: no keys in {' and '.join(empty)}"
    return f"nothing compared: no key in common (ref {counts.ref:,}, dut {counts.dut:,})"


def _stop_text(match: Match) -> str:
    """Where the run ceased to be finite, e.g. ``t0_l1_attn (ref 3 from index 7, dut 3 ...)``."""
    index = match.stop if match.stop is not None else 0
    sides = (("ref", match.refs[index]), ("dut", match.duts[index]))
    found = [
        f"{side} {entry.nonfinite[0]} from index {entry.nonfinite[1]}"
        for side, entry in sides
        if entry and entry.nonfinite
    ]
    return f"{match.keys[index]} ({', '.join(found)})"


def _level(verdict: Verdict, match: Match, greedy: GreedyMatch) -> Level:
    """The strictest level that holds, provided that no weaker one is seen to fail."""
    if verdict is Verdict.SAME:
        return Level.BIT
    if verdict is Verdict.NOT_RUN or match.stop is not None or greedy.flip is not None:
        return Level.NONE
    logits = [
        state == KeyState.SAME
        for key, state in zip(match.keys, match.states, strict=True)
        if key.layer is None and key.field == "logits"
    ]
    if logits and all(logits):
        return Level.LOGITS
    return Level.GREEDY if greedy.equal else Level.NONE


def _rows(match: Match) -> list[KeyRow]:
    indices: Iterator[int] | range = range(len(match.keys))
    if len(match.keys) > ROWS_LIMIT:
        indices = _chosen(match)
    return [_row(match, index) for index in indices]


def _chosen(match: Match) -> Iterator[int]:
    """Of a large match: all keys of the first one's step, and others that are not the same."""
    step = ("", -1)
    if match.first is not None:
        step = (match.segments[match.first], match.keys[match.first].pos)
    left = ROWS_LIMIT
    for index, state in enumerate(match.states):
        in_step = (match.segments[index], match.keys[index].pos) == step
        if in_step or (state != KeyState.SAME and left > 0):
            left -= 1
            yield index


def _row(match: Match, index: int) -> KeyRow:
    ref, dut = match.refs[index], match.duts[index]
    return KeyRow(
        match.keys[index].tag,
        match.states[index],
        ref.value_text() if ref else None,
        dut.value_text() if dut else None,
        match.segments[index],
    )


def _header_notes(ref: Dump, dut: Dump) -> Iterator[str]:
    for name in _EXPLAINING:
        ref_value, dut_value = ref.header.get(name), dut.header.get(name)
        if ref_value is not None and dut_value is not None and ref_value != dut_value:
            yield f"{name} differ: ref {ref_value} dut {dut_value}"


def _match_notes(match: Match) -> Iterator[str]:
    if match.first is not None and match.segments[match.first]:
        yield f"the first divergence is in segment {match.segments[match.first]}"
    for side, mine, other in (("ref", match.refs, match.duts), ("dut", match.duts, match.refs)):
        pairs = zip(mine, other, strict=True)
        bare = sum(1 for entry, twin in pairs if entry and twin and entry.type is None)
        if bare:
            yield f"{UNTYPED} in {side} ({bare:,} keys): digest alone compared"
    for segment in match.reordered:
        where = f" in segment {segment}" if segment else ""
        yield f"line order differs{where}: compared by key, in dataflow order"
    if match.stop is not None:
        yield f"not finite at {_stop_text(match)}: the keys after it are not comparable"
    if len(match.keys) > ROWS_LIMIT:
        yield f"more than {ROWS_LIMIT:,} keys: those that are the same are counted, not listed"
