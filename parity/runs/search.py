"""``parity diff --bisect``: one chained digest a layer, then only the layer that differs."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from itertools import groupby

from parity.comparison.compare import compare_dumps
from parity.comparison.impossible import one_hash_notes
from parity.comparison.parting import note_parting
from parity.digests.chain import bisect_first, chain
from parity.dump import MAIN, Dump, Entry
from parity.explain.drill import Start
from parity.fnv import BASES
from parity.keys import Key, KeyOrder
from parity.model.generator import words
from parity.runs.engine_diff import (
    Ask,
    add_code_notes,
    add_states,
    add_weights,
    check_control,
    explain,
    explain_layer,
    need_states,
    noted_where_not_tried,
    run_facts,
    start_of,
    unstable_start,
)
from parity.runs.run import Run, Side, run_side, tokens_for_dut
from parity.runs.stability import RUNS, call_unstable
from parity.status import Verdict
from parity.tree import CONTAMINATED, UNTYPED, Births, Search, Stability, Tree

CHAIN_FIELD = "chain"  # field name of a layer's chained digest


def bisect_engines(ref: Side, dut: Side, run: Run, ask: Ask) -> Tree:
    """Find the first layer whose chained digest differs, then rerun that layer with all fields."""
    began = time.monotonic()
    if run.prefill == "ref":
        need_states(ref, dut)
    ref_run = run_side(ref, run)
    start = ref_run.start if run.prefill == "ref" else None
    dut_run = run_side(dut, run, fed=tokens_for_dut(run, ref_run.fed), start=start)
    starts = (start_of(ref, run, ref_run), start_of(dut, run, dut_run))
    tree = _searched(starts, (ref_run.dump, dut_run.dump), ask)
    # The chained digests fold the types in: that they have none of their own says nothing.
    tree.notes = [note for note in tree.notes if not note.startswith(UNTYPED)]
    tree.notes += one_hash_notes(ref_run.dump, dut_run.dump)
    note_parting(tree, ref_run.dump, dut_run.dump)
    add_states(tree, ref_run, dut_run)
    add_weights(tree, ref, dut)
    if tree.verdict is Verdict.DIVERGED:
        _confirm(tree, starts, (ref_run.dump, dut_run.dump))
    if tree.verdict is Verdict.DIVERGED and tree.reason == CONTAMINATED:
        handed = replace(run, prefill="ref", dump_prefill=False)
        with noted_where_not_tried(tree):
            tree.decode = bisect_engines(ref, dut, handed, ask)
        tree.births = _unsearched(tree.births)
    tree.run, tree.reproduce = run_facts(run, ref_run.fed), ask.reproduce
    if tree.verdict is Verdict.SAME:
        pos = run.start + int(words(ask.seed, "control position", 0, 1)[0]) % run.n
        planted = Key(pos, None, "")
        dumps = (
            step_dump(starts[0], ref_run.dump, planted),
            step_dump(starts[1], dut_run.dump, planted),
        )
        check_control(tree, starts[1], *dumps, ask.seed)
    add_code_notes(tree)
    tree.seconds = time.monotonic() - began
    return tree


def _confirm(tree: Tree, starts: tuple[Start, Start], whole: tuple[Dump, Dump]) -> None:
    """Ask for a second time what no search asked twice: the prefill that left other states, or the
    whole run where no key differs."""
    if tree.reason == CONTAMINATED and not starts[0].run.dump_prefill:
        found = unstable_start(starts)
        if found is not None:
            call_unstable(tree, found)
    elif tree.first is None:
        explain(tree, starts, whole)


def _searched(starts: tuple[Start, Start], whole: tuple[Dump, Dump], ask: Ask) -> Tree:
    """The first differing layer by its chained digest, then its keys by a rerun of that layer."""
    run = starts[0].run
    if any("stopped" in side.header for side in whole):
        # Digests do not tell a value that is not finite, which ends the comparison there.
        tree = compare_dumps(*whole, level_asked=ask.level)
        if tree.verdict is Verdict.DIVERGED:
            explain(tree, starts, whole)
        return tree
    chains = (fold_layers(whole[0], run), fold_layers(whole[1], run))
    digests = [[entry.digest for entry in side.entries] for side in chains]
    index, read = bisect_first(digests[0], digests[1])
    total = len(digests[0]) + len(digests[1])
    if index is None:
        tree = compare_dumps(*chains, level_asked=ask.level)
        tree.search = Search(None, read, total, 2)
        return tree
    reached = [side.entries[index].key for side in chains if index < len(side.entries)]
    key = min(reached, key=KeyOrder())
    reruns = (step_dump(starts[0], whole[0], key), step_dump(starts[1], whole[1], key))
    tree = compare_dumps(*reruns, level_asked=ask.level)
    tree.search = Search(key.tag.removesuffix(f"_{CHAIN_FIELD}"), read, total, 4)
    shaky = _unlike_itself(whole, reruns)
    if shaky is not None:
        role, other = shaky
        at = ("ref", "dut").index(role)
        runs = _runs_tree(whole[at], reruns[at])
        call_unstable(tree, Stability(RUNS, role, other.tag, RUNS, runs))
    elif tree.first is not None:
        explain_layer(tree, starts, whole, Key.parse(tree.first))
    return tree


def _unlike_itself(whole: tuple[Dump, Dump], reruns: tuple[Dump, Dump]) -> tuple[str, Key] | None:
    """The side whose rerun gave another digest than its first run, and the first such key."""
    for role, first, again in zip(("ref", "dut"), whole, reruns, strict=True):
        before = {entry.key: entry.digest for entry in first.entries}
        for entry in again.entries:
            if before.get(entry.key) != entry.digest:
                return role, entry.key
    return None


def _unsearched(births: Births | None) -> Births:
    """What is said of the births after a contaminated start, of which no layer was searched."""
    text = "nothing of the start was searched"
    if births is None:
        reason = f"{text} (parity diff without --bisect: all)"
        return Births([], complete=False, reason=reason, reruns=0, replays=0)
    return replace(births, complete=False, reason=f"{text}; {births.reason}")


def _runs_tree(whole: Dump, rerun: Dump) -> Tree:
    """The first run of one side against its rerun, at the keys that were run again."""
    again = {entry.key for entry in rerun.entries}
    first = [entry for entry in whole.entries if entry.key in again]
    return compare_dumps(Dump(dict(whole.header), {MAIN: first}, whole.source), rerun)


def fold_layers(dump: Dump, run: Run) -> Dump:
    """One entry a layer: the chained digest over all keys up to and with it (digests/chain.py).
    Fields of no layer may stand before the layers and after them."""
    digest = BASES[run.hash_name]
    folded: list[Entry] = []
    seen: Counter[tuple[int, int | None]] = Counter()
    for place, group in groupby(dump.entries, key=_place):
        seen[place] += 1
        again = "" if seen[place] == 1 else f"-{seen[place]}"
        digest = chain(group, digest)[-1]
        folded.append(Entry(Key(*place, f"{CHAIN_FIELD}{again}"), digest))
    return Dump(dict(dump.header), {MAIN: folded}, dump.source)


def step_dump(start: Start, whole: Dump, key: Key) -> Dump:
    """Rerun one step and dump the fields of the layer of ``key``, or all where its field is ""."""
    places = frozenset({(key.pos, key.layer)}) if key.field else None
    step = start.step_at(key.pos, places=places)
    return Dump(dict(whole.header), {MAIN: step.entries}, whole.source)


def _place(entry: Entry) -> tuple[int, int | None]:
    return entry.key.pos, entry.key.layer
