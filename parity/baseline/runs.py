"""Engines and baselines: one is run until it can be trusted, and again against what was kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parity.baseline import (
    KIND,
    Stored,
    add_elements,
    differing,
    header_changes,
    header_notes,
    require_green,
)
from parity.baseline.arrays import array_digest
from parity.baseline.states import digested
from parity.baseline.told import accepted_as
from parity.comparison.compare import compare_dumps
from parity.comparison.impossible import one_hash_notes
from parity.comparison.parting import label_parting
from parity.comparison.states import differing_weights
from parity.dump import Dump
from parity.errors import InputError
from parity.explain.drill import Start
from parity.keys import Key
from parity.model.model import model_digest
from parity.registry import require
from parity.runs.engine_diff import Ask, add_states, check_control, run_facts, start_of
from parity.runs.repeats import Runs
from parity.runs.run import Run, Side, SideRun, run_side
from parity.runs.stability import confirm
from parity.runs.stopped import kept_when_stopped
from parity.status import Verdict
from parity.tree import CONTAMINATED, Control, Tree

FEWEST_RUNS = 3  # two by one engine, with a reset between; the last by one opened anew
FIRST, ALL = "first", "all"  # which tensors to keep, beside a key's tag


@dataclass(frozen=True)
class Measured:
    """A run that repeats, and in which a planted fault is found. ``side``: opened for the last
    repeat, still open; ``runs``: how many were made."""

    done: SideRun
    side: Side
    runs: int
    control: Control | None

    @property
    def stability(self) -> dict[str, Any]:
        """What a record says of it."""
        found = self.control.key if self.control else ""
        return {"runs": self.runs, "by": "one engine, the last run by one opened anew"} | {
            "control": f"fired at {found}"
        }


def measure(opened: Callable[[], Side], run: Run, runs: int, *, seed: int = 0) -> Measured:
    """Run an engine ``runs`` times (3 or more), the last time opened anew, as ``parity stable``.

    Raises InputError when a repeat is not run 1, when a value is not finite, and when a planted
    fault is not found.
    """
    side = opened()
    done = Runs(run_side(side, run))
    fed = done.first.fed
    for _ in range(runs - 2):
        done.add(run_side(side, run, fed=fed))
    weights, spec = side.weights, side.spec
    del side  # there may be no room for two
    fresh = opened()
    last = run_side(fresh, run, fed=fed)
    done.add(last, differing_weights(weights, fresh.weights))
    if done.worst is not None:
        raise InputError(
            f"{spec}: unstable: run {done.worst.number} differs from run 1 first at "
            f"{done.worst.unlike.place}: refused",
            "parity stable shows where an engine differs from itself",
        )
    tree = compare_dumps(done.first.dump, last.dump)
    if tree.verdict is Verdict.SAME:
        check_control(tree, start_of(fresh, run, last), done.first.dump, last.dump, seed)
    require_green(tree, spec)
    return Measured(done.first, fresh, runs, tree.control)


# --- tensors --------------------------------------------------------------------------------------


def wanted_keys(dump: Dump, chosen: Iterable[str]) -> frozenset[Key]:
    """The keys whose values are to be kept. ``first``: all of the first dumped position, ``all``,
    or tags. Raises InputError for a tag that the dump does not have."""
    keys = {entry.key.tag: entry.key for entry in dump.entries}
    first = min((key.pos for key in keys.values()), default=0)
    found: set[Key] = set()
    for word in chosen:
        if word in (FIRST, ALL):
            found |= {key for key in keys.values() if word == ALL or key.pos == first}
        elif word in keys:
            found.add(keys[word])
        else:
            raise InputError(
                f"--tensors {word}: the run dumps no such key", "give first, all or a key of it"
            )
    return frozenset(found)


def capture(start: Start, dump: Dump, wanted: frozenset[Key]) -> dict[str, np.ndarray]:
    """The values behind ``wanted`` by tag, from another run, each held to the dump's digest.

    Raises NotRunError for an engine without the capability ``capture``, InputError for a value
    that is not the one that was hashed.
    """
    if not wanted:
        return {}
    require(start.side.engine, "capture", "--tensors")
    found: dict[Key, np.ndarray] = {}
    by_position: dict[int, list[Key]] = {}
    for key in wanted:
        by_position.setdefault(key.pos, []).append(key)
    for step in start.walk(by_position):
        found |= step.tensors
    digests = {entry.key: entry.digest for entry in dump.entries}
    for key in wanted:
        if key not in found or array_digest(found[key], dump.hash_name) != digests[key]:
            raise InputError(
                f"--tensors {key.tag}: the value is not the one behind the digest",
                "parity doctor checks the tap of an engine",
            )
    return {key.tag: found[key] for key in sorted(wanted, key=lambda key: key.tag)}


# --- checking -------------------------------------------------------------------------------------


def require_same_run(stored: Stored, run: Run) -> None:
    """Raise InputError, naming what differs, unless ``run`` is the recorded one."""
    header, where = stored.dump.header, f"{KIND} {stored.entry.name!r}"
    tokens = header["tokens"].split(",")
    recorded = {
        "hash": stored.dump.hash_name,
        "fields": header.get("fields", "default"),
        "tokens": ",".join(tokens[: run.start]),
        "prompt": header["prefill"].split()[0],
        "steps": str(len(tokens) - run.start),
    }
    given = {
        "hash": run.hash_name,
        "fields": ",".join(run.extra_fields) or "default",
        "tokens": ",".join(map(str, run.prompt)),
        "prompt": str(run.start),
        "steps": str(run.n),
    }
    for name, value in recorded.items():
        if value != given[name]:
            raise differing(where, name, value, given[name])


def judge_run(stored: Stored, opened: Callable[[], Side], run: Run, ask: Ask) -> Tree:
    """Run an engine with the recorded tokens and compare keys and states with what was kept.

    Raises InputError when the run or the weights are not the recorded ones. A red run is repeated
    before it is called diverged; a green one must find a planted fault.
    """
    began = time.monotonic()
    require_same_run(stored, run)
    side = opened()
    noted = _weights_note(stored, side, run)
    ref = stored.dump
    fed = [int(token) for token in ref.header["tokens"].split(",")[run.start :]]
    with kept_when_stopped(ref, ask.level, ask.reproduce):
        done = run_side(side, run, fed=fed)
    if done.dump.header["model"] != ref.header["model"]:  # a program has models of its own
        where = f"{KIND} {stored.entry.name!r}"
        raise differing(where, "model", ref.header["model"], done.dump.header["model"])
    tree = compare_dumps(ref, done.dump, level_asked=ask.level)
    tree.run = run_facts(run, fed) | {"model": ref.header["model"]}
    tree.reproduce = ask.reproduce
    tree.notes += one_hash_notes(ref, done.dump)
    label_parting(tree, ref, done.dump)
    add_states(tree, replace(stored.states, dump=ref), digested(done))
    if tree.verdict is Verdict.DIVERGED:
        confirm(tree, side, run, done)
        _explain(tree, stored, start_of(side, run, done), done.dump)
    if tree.verdict is Verdict.SAME:
        check_control(tree, start_of(side, run, done), ref, done.dump, ask.seed)
    tree.notes += [*noted, *header_notes(ref.header, done.dump.header)]
    tree.baseline = accepted_as(stored.entry, header_changes(ref.header, done.dump.header))
    tree.seconds = time.monotonic() - began
    return tree


def _weights_note(stored: Stored, side: Side, run: Run) -> list[str]:
    """Raise InputError where the engine holds other weights; a note where a side does not tell."""
    recorded = stored.dump.header.get("weights")
    told = {"the recorded side": recorded, "dut": side.weights}
    silent = [name for name, weights in told.items() if not weights]
    if recorded is None or silent:
        return [f"weights not compared: {' and '.join(silent)} did not tell them"]
    digest = f"{model_digest(run.model.config, side.weights):016x}"
    if digest != recorded:
        raise differing(f"{KIND} {stored.entry.name!r}", "weights", recorded, digest)
    return []


def _explain(tree: Tree, stored: Stored, start: Start, dut: Dump) -> None:
    """The elements of the first key that differs, where its tensor was kept."""
    if tree.verdict is not Verdict.DIVERGED or tree.first is None:
        return
    if tree.reason == CONTAMINATED and not start.run.dump_prefill:  # a false lead
        return
    if tree.first not in stored.tensors:
        tree.notes.append(f"no elements: no tensor of {tree.first} was kept (save --tensors)")
    elif not start.side.has("capture"):
        tree.notes.append("no elements: the engine lacks the capability 'capture'")
    else:
        key = Key.parse(tree.first)
        step = start.step_at(key.pos, tensors=frozenset({key}))
        add_elements(tree, stored, dut, _by_tag(step.tensors))


def _by_tag(tensors: Mapping[Key, np.ndarray]) -> dict[str, np.ndarray]:
    return {key.tag: array for key, array in tensors.items()}
