"""Baselines: accepted results in a store, and what a result must be to be accepted.

A record says everything that a result is worth nothing without: the command, the settings, the
model, the tokens and where they came from, the build and the device, and what was done to trust
it. Its objects are the dump, and on request tensors and the digests of the states.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np

from parity.baseline.arrays import Arrays, arrays_dump, arrays_text, carried, read_arrays
from parity.baseline.states import digested, read_states, states_text
from parity.baseline.told import NOT_RECORDED, accepted_as
from parity.builds.provenance import packages
from parity.comparison.compare import compare_dumps, exit_status
from parity.comparison.elements import compare_tensors
from parity.dump import PARTIAL, Dump, TensorType
from parity.dumps.reader import parse_dump
from parity.dumps.writer import format_lines
from parity.errors import InputError
from parity.keys import FREE
from parity.runs.engine_diff import Ask, finish_dumps
from parity.runs.run import SideRun
from parity.status import ExitStatus, Verdict
from parity.store import Entry as StoreEntry
from parity.store import Store, check_name
from parity.store.entries import sha256
from parity.tree import Tree

KIND = "baseline"
FORMAT, VERSION = "parity-record", 1
SAVE, PROMOTE = "save", "promote"
RUN, FILE, ARRAYS = "run", "dump file", "arrays"  # what was accepted
# Headers without which nobody could say what a dump is of.
NEEDED = ("engine", "version", "tier", "variants", "model", "weights", "tokens", "prefill")
# Headers that say which run it is: another value is another run, not another result.
_INPUTS = ("model", "weights", "prefill", "kv", "family", "fields", "hash")
_DEFAULTS = {"fields": "default", "hash": "fnv1a64"}
_NUMBER = re.compile("[0-9]{1,18}")
_RESULTS = frozenset({"format", "tokens", "greedy", *_INPUTS})


@dataclass(frozen=True)
class Facts:
    """What a dump does not say itself. ``command``: as typed; ``spec``: the side as typed;
    ``source``: RUN or FILE; ``settings``: the options that make the run again, None where they are
    not known; ``tokens_from``: where the prompt came from; ``run``: the states; ``tensors``: values
    by tag; ``stability``: how often it was run, None where it was not; ``evidence``: the
    comparison that was green, None where nothing was asked for."""

    command: str
    spec: str
    source: str = FILE
    settings: Mapping[str, Any] | None = None
    tokens_from: str = NOT_RECORDED
    run: SideRun | None = None
    tensors: Arrays = field(default_factory=dict)
    stability: Mapping[str, Any] | None = None
    evidence: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Stored:
    """An accepted result, read and verified."""

    entry: StoreEntry
    objects: Mapping[str, bytes | None]

    @property
    def record(self) -> dict[str, Any]:
        """Everything that is text."""
        return self.entry.record

    @cached_property
    def dump(self) -> Dump:
        """Its keys, named after the baseline in reports."""
        source, data = f"{KIND} {self.entry.name}", self.objects.get("dump")
        if data is not None:
            return parse_dump(data, source)
        types = self.record["tensors"].items()
        return arrays_dump(
            self.tensors, source, {tag: TensorType.parse(kind).dtype for tag, kind in types}
        )

    @cached_property
    def states(self) -> SideRun:
        """Digests of its states."""
        return read_states(self.objects.get("states"))

    @cached_property
    def tensors(self) -> dict[str, np.ndarray]:
        """Values by tag, where they were kept."""
        data = self.objects.get("tensors")
        return {} if data is None else read_arrays(data)


# --- accepting ------------------------------------------------------------------------------------


def require_new(store: Store, name: str) -> None:
    """Raise InputError when there is a baseline of that name, or cannot be one: ask before a run,
    not after it."""
    check_name(KIND, name)
    if name in store.names(KIND):
        last = store.latest(KIND, name)
        raise InputError(
            f"{KIND} {name!r} exists already: entry {last.seq} of {last.created}, "
            f"{last.digest[:12]}",
            "give another name; parity baseline promote is the way to change one",
        )


def require_whole(dump: Dump, source: str = FILE) -> None:
    """Raise InputError unless ``dump`` is all of a finished run and says what it is of. An engine
    that was run need not tell its weights; the record then says that it did not."""
    where = dump.source or "the dump"
    for name, what in ((PARTIAL, "a partial dump"), ("stopped", "its run was stopped")):
        if name in dump.header:
            raise InputError(f"{where}: {what}: {dump.header[name]}", "accept a whole run")
    needed = [name for name in NEEDED if source == FILE or name != "weights"]
    lacking = [name for name in needed if not dump.header.get(name)]
    if lacking:
        raise InputError(
            f"{where}: its header does not name {', '.join(lacking)}",
            "let whatever writes it add the lines (docs/dump-format.md)",
        )
    _require_prompt(dump.header, where)
    _require_keys(dump)
    _require_end(dump, where)


def _require_prompt(header: Mapping[str, str], where: str) -> None:
    """Raise InputError unless the header says which tokens there were and how many of them are the
    prompt: whoever checks against it must be able to give the same."""
    tokens, prefill = header["tokens"].split(","), header["prefill"]
    wrong = next((token for token in tokens if _NUMBER.fullmatch(token) is None), None)
    if wrong is not None:
        raise InputError(
            f"{where}: header tokens: {wrong!r} is no token", "write it as # tokens 611,87,32"
        )
    count = prefill.split(" ")[0]
    if _NUMBER.fullmatch(count) is None or not 0 < int(count) <= len(tokens):
        raise InputError(
            f"{where}: header prefill: {prefill!r} does not say how many of the {len(tokens):,} "
            "tokens are the prompt",
            "write it as # prefill 2 own",
        )


def _require_end(dump: Dump, where: str) -> None:
    """Raise InputError for a dump that was cut between two lines: its last position is that of the
    last token, and has every key that the position before it has."""
    names: dict[int, set[str]] = {}
    for entry in dump.entries:
        pos = entry.key.pos
        if pos != FREE:
            names.setdefault(pos, set()).add(entry.key.tag.removeprefix(f"t{pos}_"))
    if not names:
        return
    last, end = max(names), dump.header["tokens"].count(",")
    lacking = sorted(names.get(last - 1, set()) - names[last])
    problem = f"no t{last}_{lacking[0]}, which t{last - 1} has" if lacking else ""
    if last < end:
        problem = f"it ends at t{last}, its tokens at t{end}"
    if problem:
        raise InputError(f"{where}: a partial dump: {problem}", "accept a whole run")


def _require_keys(dump: Dump) -> None:
    tree = compare_dumps(dump, dump)
    if tree.verdict is not Verdict.SAME:
        raise InputError(f"{dump.source or 'the dump'}: {tree.reason}", "accept a whole run")


def save_dump(store: Store, name: str, dump: Dump, facts: Facts) -> StoreEntry:
    """Accept ``dump`` under a new name. Raises InputError when the name is taken, the dump is not
    whole, or its header lacks what a record needs; nothing is written then."""
    require_whole(dump, facts.source)
    require_new(store, name)
    return _accept(store, name, dump, facts, SAVE, None, [])


def promote_dump(
    store: Store, name: str, dump: Dump, facts: Facts, before: Stored
) -> tuple[StoreEntry, list[str]]:
    """Accept ``dump`` in the place of ``before``; returns the entry and what changed, in lines.

    The caller has the evidence that it is right. Raises InputError when nothing changed, when it
    is of another model or input, and when another one was promoted since ``before`` was read.
    """
    require_whole(dump, facts.source)
    require_same_input(before, dump)
    changed = changes(before, dump, facts)
    if not changed:
        raise _unchanged(name, before)
    entry = _accept(store, name, dump, facts, PROMOTE, before.entry.digest, changed)
    return entry, changed


def save_arrays(
    store: Store, name: str, arrays: Arrays, *, command: str = "", runs: int = 0
) -> StoreEntry:
    """Accept named arrays under a new name. ``runs``: how often they were made, all alike; 0 where
    that is not known. Raises InputError for no arrays, a taken name and a dtype no dump can name.
    """
    dump = arrays_dump(arrays, name)
    _require_keys(dump)
    require_new(store, name)
    return _accept(store, name, dump, _array_facts(arrays, command, runs), SAVE, None, [])


def promote_arrays(
    store: Store, name: str, arrays: Arrays, *, command: str = "", runs: int = 0
) -> tuple[StoreEntry, list[str]]:
    """Accept named arrays in the place of those accepted before; see ``promote_dump``."""
    before = load(store, name)
    dump = arrays_dump(arrays, name)
    _require_keys(dump)
    facts = _array_facts(arrays, command, runs)
    changed = changes(before, dump, facts)
    if not changed:
        raise _unchanged(name, before)
    entry = _accept(store, name, dump, facts, PROMOTE, before.entry.digest, changed)
    return entry, changed


def _array_facts(arrays: Arrays, command: str, runs: int) -> Facts:
    stability = {"runs": runs} if runs else None
    return Facts(command, ARRAYS, ARRAYS, tensors=arrays, stability=stability)


def _unchanged(name: str, before: Stored) -> InputError:
    return InputError(
        f"{KIND} {name!r}: nothing changed", f"entry {before.entry.seq} stays the accepted one"
    )


def _accept(
    store: Store,
    name: str,
    dump: Dump,
    facts: Facts,
    action: str,
    expected: str | None,
    changed: Sequence[str],
) -> StoreEntry:
    """Put the objects, then append the entry that makes them count."""
    parts = {
        "dump": None if facts.source == ARRAYS else _dump_text(dump),
        "states": None if facts.run is None else states_text(facts.run),
        "tensors": arrays_text(facts.tensors) if facts.tensors else None,
    }
    objects = {part: None if data is None else store.put(data) for part, data in parts.items()}
    record = {**_record(dump, facts), "objects": objects, "changed": [*changed]}
    return store.append(KIND, name, record, action=action, expected=expected)


def _record(dump: Dump, facts: Facts) -> dict[str, Any]:
    tokens = dump.header.get("tokens", "")
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": facts.source,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": facts.command,
        "spec": facts.spec,
        "settings": None if facts.settings is None else dict(facts.settings),
        "input": {
            "tokens": tokens,
            "digest": sha256(tokens.encode()) if tokens else "",
            "from": facts.tokens_from,
        },
        "header": dict(dump.header),
        "packages": dump.header.get("packages") or packages(),
        "keys": dump.size,
        "tensors": _types(dump, facts.tensors),
        "stability": None if facts.stability is None else dict(facts.stability),
        "evidence": None if facts.evidence is None else dict(facts.evidence),
    }


# --- reading and checking -------------------------------------------------------------------------


def load(store: Store, name: str) -> Stored:
    """The accepted result; every object of its whole history is verified first.

    Raises InputError, naming the file, when anything was altered, is absent, or is not the last
    accepted; and for a name that there is not.
    """
    history = store.history(KIND, name)
    held: dict[str, bytes | None] = {}
    for entry in history:
        objects = entry.record.get("objects", {}).items()
        held = {part: None if address is None else store.get(address) for part, address in objects}
    last = history[-1]
    if (last.record.get("format"), last.record.get("version")) != (FORMAT, VERSION):
        raise InputError(
            f"{KIND} {name!r}: its record is no {FORMAT} {VERSION}",
            "check it with the parity that wrote it",
        )
    return Stored(last, held)


def check_dump(store: Store, name: str, dump: Dump, facts: Facts | None = None) -> Tree:
    """The tree of ``dump`` against the accepted one, with a control at dump level where it is
    green. ``facts.run``: states to compare too.

    Raises InputError when the store was altered or the dump is of another model or input.
    """
    stored = load(store, name)
    require_same_input(stored, dump)
    return judge_written(stored, dump, Ask(), facts)


def judge_written(stored: Stored, dump: Dump, ask: Ask, facts: Facts | None = None) -> Tree:
    """``check_dump`` of a baseline that was read."""
    from parity.runs.engine_diff import add_states

    tree = compare_dumps(stored.dump, dump, level_asked=ask.level)
    if facts is not None and facts.run is not None:
        add_states(tree, stored.states, digested(facts.run))
    else:
        tree.notes.append("states not compared: a dump holds none")
    finish_dumps(tree, stored.dump, dump, ask)
    headers = stored.dump.header, dump.header
    tree.notes += header_notes(*headers)
    tree.baseline = accepted_as(stored.entry, header_changes(*headers))
    return tree


def check_arrays(store: Store, name: str, arrays: Arrays, *, seed: int = 0) -> Tree:
    """The tree of named arrays against those accepted, with the elements of the first that
    differs. ``seed``: of the control. Raises InputError when the store was altered."""
    stored = load(store, name)
    dump = arrays_dump(arrays, "the arrays at hand")
    tree = compare_dumps(stored.dump, dump)
    finish_dumps(tree, stored.dump, dump, Ask(seed=seed))
    add_elements(tree, stored, dump, arrays)
    tree.baseline = accepted_as(stored.entry)
    return tree


def require_green(tree: Tree, what: str) -> None:
    """Raise InputError unless ``tree`` is green at level bit: the refusal of a red run."""
    if tree.verdict is Verdict.SAME and exit_status(tree) is ExitStatus.SAME:
        return
    said = [str(tree.verdict).replace("_", " "), f"first at {tree.first}" if tree.first else ""]
    text = ", ".join(filter(None, [*said, tree.reason.split("\n")[0]]))
    raise InputError(f"{what}: {text}: refused", "accept a run that is the same as its ref")


def require_same_input(stored: Stored, dump: Dump) -> None:
    """Raise InputError, naming what differs, unless ``dump`` is of the recorded model and input."""
    recorded, given = stored.dump.header, dump.header
    where = f"{KIND} {stored.entry.name!r}"
    for name in _INPUTS:
        pair = [header.get(name, _DEFAULTS.get(name, "")) for header in (recorded, given)]
        if pair[0] and pair[0] != pair[1]:
            said = pair[1] or "nothing"
            raise differing(where, name, pair[0], said)
    sides = [header.get("tokens", "").split(",") for header in (recorded, given)]
    start = int(recorded.get("prefill", "0").split()[0])
    prompts = [",".join(side[:start]) for side in sides]
    if prompts[0] != prompts[1]:
        raise differing(where, "tokens", *prompts)
    if len(sides[0]) != len(sides[1]) and "stopped" not in given:
        raise differing(where, "steps", *(str(len(side) - start) for side in sides))


def differing(where: str, name: str, recorded: str, given: str) -> InputError:
    """What is said of a check that is not of the recorded run."""
    return InputError(
        f"{where} is of another run: {name} {_short(recorded)} recorded, {_short(given)} given",
        "give what was recorded (parity baseline show), or save it under another name",
    )


def changes(before: Stored, dump: Dump, facts: Facts) -> list[str]:
    """What ``dump`` changes in the accepted result, one line each; nothing where it is the same."""
    tree = compare_dumps(before.dump, dump)
    counts = tree.counts
    lines = []
    if counts.total != counts.same:
        others = ((counts.missing, "missing"), (counts.extra, "new"))
        more = "".join(f", {count:,} {what}" for count, what in others if count)
        lines.append(
            f"keys: {counts.differ:,} of {counts.total:,} differ{more}, first {tree.first}"
        )
    lines += _state_changes(before, facts)
    if before.record["spec"] != facts.spec:
        lines.append(f"spec: {before.record['spec']} -> {facts.spec}")
    headers = (before.dump.header, dump.header)
    for name in ("greedy", *_build_names(*headers)):
        pair = [_short(header.get(name) or NOT_RECORDED) for header in headers]
        if headers[0].get(name) != headers[1].get(name):
            lines.append(f"{name}: {pair[0]} -> {pair[1]}")
    if set(before.tensors) != set(facts.tensors):
        lines.append(f"tensors kept: {len(before.tensors):,} -> {len(facts.tensors):,}")
    return lines


def _state_changes(before: Stored, facts: Facts) -> list[str]:
    from parity.comparison.states import compare_states

    new = SideRun(Dump(), [], {}) if facts.run is None else digested(facts.run)
    lines = []
    pairs = (("start", before.states.start, new.start), ("end", before.states.end, new.end))
    for when, old, now in pairs:
        if (old is None) != (now is None):
            lines.append(f"{when} state: {'now' if old is None else 'no longer'} recorded")
        elif old is not None and now is not None:
            first = compare_states(when, old, now).first
            lines += [f"{when} state: differs, first at {first}"] if first else []
    return lines


def header_notes(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What changed around the numbers since the baseline was accepted: it decides nothing."""
    return [
        f"{name} changed since it was accepted: {_short(before)}, now {_short(after)}"
        for name, before, after in header_changes(recorded, now)
    ]


def header_changes(
    recorded: Mapping[str, str], now: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Names of headers that tell of build and machine and are not as recorded, with both texts."""
    return [
        (name, recorded.get(name) or NOT_RECORDED, now.get(name) or NOT_RECORDED)
        for name in _build_names(recorded, now)
        if recorded.get(name) != now.get(name)
    ]


def _build_names(*headers: Mapping[str, str]) -> list[str]:
    """Header names that tell of build and machine, as they come."""
    return [name for name in dict.fromkeys(n for h in headers for n in h) if name not in _RESULTS]


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


# --- tensors --------------------------------------------------------------------------------------


def add_elements(tree: Tree, stored: Stored, dump: Dump, arrays: Arrays) -> None:
    """The elements of the first key that differs, where both sides hold its values."""
    key = tree.first
    if tree.verdict is not Verdict.DIVERGED or key not in stored.tensors or key not in arrays:
        return
    pair = (_dtype_of(key, stored.dump), _dtype_of(key, dump))
    values = (stored.tensors[key], carried(arrays[key]))
    tree.elements = compare_tensors(key, *values, dtypes=pair if all(pair) else None)


def _dtype_of(tag: str, dump: Dump) -> str:
    """The dtype that a dump names for a key, "" where it names none."""
    found = (entry.type for entry in dump.entries if entry.key.tag == tag and entry.type)
    return next((kind.dtype for kind in found), "")


def _types(dump: Dump, arrays: Arrays) -> dict[str, str]:
    """The type of every value that is kept, by tag."""
    kinds = {entry.key.tag: entry.type for entry in dump.entries} if arrays else {}
    return {tag: str(kinds.get(tag)) for tag in arrays}


def _dump_text(dump: Dump) -> bytes:
    return "".join(f"{line}\n" for line in format_lines(dump, plain=False)).encode()
