"""``parity diff``: run both sides, compare, and explain the first differing key."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from parity.compare import compare_dumps
from parity.control import dump_control, inject_control
from parity.drill import Start, input_rows, key_elements, rerun_key, unstable_side
from parity.dump import Dump
from parity.errors import NotRunError
from parity.keys import Key
from parity.parting import label_parting
from parity.run import Run, Side, SideRun, run_side, tokens_for_dut
from parity.states import compare_states, differing_weights
from parity.status import Level, Verdict
from parity.tree import CONTAMINATED, StateDiff, Tree


@dataclass(frozen=True)
class Ask:
    """What the user wants of a comparison beside the run itself."""

    level: Level = Level.BIT
    reproduce: str = ""
    seed: int = 0


def diff_engines(ref: Side, dut: Side, run: Run, ask: Ask) -> Tree:
    """Both sides are engines with the model loaded; ``run`` holds the settings for both."""
    began = time.monotonic()
    if run.prefill == "ref":
        need_states(ref, dut)
    ref_run = run_side(ref, run)
    fed = tokens_for_dut(run, ref_run.fed)
    dut_run = run_side(dut, run, fed=fed, start=ref_run.start if run.prefill == "ref" else None)
    tree = compare_dumps(ref_run.dump, dut_run.dump, level_asked=ask.level)
    tree.run = run_facts(run, ref_run.fed)
    tree.reproduce = ask.reproduce
    label_parting(tree, ref_run.dump, dut_run.dump)
    add_states(tree, ref_run, dut_run)
    add_weights(tree, ref, dut)
    starts = (start_of(ref, run, ref_run), start_of(dut, run, dut_run))
    if tree.reason == CONTAMINATED:
        # The first key of a contaminated run is a false lead: the decode tree is explained instead.
        tree.decode = _decode_from_ref(starts[0], ref_run, dut, ask)
    elif tree.verdict is Verdict.DIVERGED and tree.first is not None:
        explain(tree, starts, (ref_run.dump, dut_run.dump))
    if tree.verdict is Verdict.SAME:
        check_control(tree, starts[1], ref_run.dump, dut_run.dump, ask.seed)
    tree.seconds = time.monotonic() - began
    return tree


def finish_dumps(tree: Tree, ref: Dump, dut: Dump, ask: Ask) -> Tree:
    """A comparison in which a side is no engine: control at dump level, no drill-down."""
    tree.reproduce = ask.reproduce
    label_parting(tree, ref, dut)
    if tree.verdict is Verdict.SAME:
        tree.control = dump_control(ref, dut, ask.seed)
        _judge_control(tree, dut.source)
    return tree


def start_of(side: Side, run: Run, done: SideRun) -> Start:
    """Where reruns of ``side`` begin after ``done``."""
    return Start(side, run, done.fed, done.start)


def run_facts(run: Run, fed: Sequence[int]) -> dict[str, str]:
    """Settings of a run, as reports show them."""
    return {
        "model": run.model.label,
        "prompt": ",".join(map(str, run.prompt)),
        "fed": ",".join(map(str, fed)),
        "positions": f"{run.start}:{run.positions - 1}",
        "tokens": str(run.start),
        "prefill": run.prefill,
        "tokens_from": run.tokens_from,
    }


def explain(tree: Tree, starts: tuple[Start, Start], dumps: tuple[Dump, Dump]) -> None:
    """Rerun both sides for the first key; a side that differs from itself makes it unstable."""
    key = Key.parse(tree.first or "")
    reruns = (rerun_key(starts[0], key), rerun_key(starts[1], key))
    shaky = unstable_side(key, dumps, reruns)
    if shaky:
        call_unstable(tree, shaky, key)
        return
    tree.inputs = input_rows(starts[0].run, key, *reruns)
    tree.elements = key_elements(key, *reruns)


def call_unstable(tree: Tree, side: str, key: Key) -> None:
    """A side that differs from itself: nothing else can be said of the run."""
    tree.verdict, tree.level, tree.first = Verdict.UNSTABLE, Level.NONE, key.tag
    tree.reason = f"{side} differs from itself at {key}: a rerun gave another digest"


def check_control(tree: Tree, start: Start, ref: Dump, dut: Dump, seed: int) -> None:
    """Plant a fault in the green run; one that is not found leaves nothing proved."""
    if start.side.has("inject"):
        tree.control = inject_control(start, ref, dut, seed)
    else:
        tree.control = dump_control(ref, dut, seed)
    _judge_control(tree, start.side.spec)


def _judge_control(tree: Tree, dut: str) -> None:
    if tree.control is None or tree.control.fired:
        return
    tree.verdict = Verdict.NOT_RUN
    tree.level = Level.NONE
    found = tree.control.found or "nothing"
    tree.reason = (
        f"the control did not fire: a fault planted at {tree.control.key} was found at {found}"
        f"\nthe tap of {dut} does not show what it computes: parity doctor"
    )


def need_states(ref: Side, dut: Side) -> None:
    """NotRunError where a side cannot hand over or take over a state."""
    for side in (ref, dut):
        if not side.has("state"):
            raise NotRunError(
                f"{side.spec} lacks the capability 'state', needed for --prefill ref",
                "use --prefill own",
            )


def add_states(tree: Tree, ref: SideRun, dut: SideRun) -> None:
    """Compare the states before and after; a difference decides where no key differs."""
    pairs = (("start", ref.start, dut.start), ("end", ref.end, dut.end))
    for when, ref_state, dut_state in pairs:
        if ref_state is None or dut_state is None:
            side = "ref" if ref_state is None else "dut"
            tree.notes.append(f"states not compared: {side} lacks the capability 'state'")
            return
        tree.states.append(compare_states(when, ref_state, dut_state))
    start, end = tree.states
    if tree.verdict not in (Verdict.SAME, Verdict.DIVERGED):
        return
    if not start.equal:
        _diverge(tree, CONTAMINATED)
    elif not end.equal and tree.verdict is Verdict.SAME:
        _diverge(tree, _end_text(end))


def _end_text(end: StateDiff) -> str:
    return f"end state differs, first at {end.first}"


def _diverge(tree: Tree, reason: str) -> None:
    tree.verdict, tree.reason = Verdict.DIVERGED, reason
    if tree.level is Level.BIT:
        tree.level = Level.LOGITS


def add_weights(tree: Tree, ref: Side, dut: Side) -> None:
    """Compare the digests of the weights both sides hold."""
    names = differing_weights(ref.weights, dut.weights)
    if not names:
        return
    text = f"weights differ in {len(names):,} tensors, first {names[0]}"
    tree.notes = [note for note in tree.notes if not note.startswith("weights differ")] + [text]
    if tree.verdict is Verdict.SAME:
        _diverge(tree, text)


def _decode_from_ref(ref: Start, ref_run: SideRun, dut: Side, ask: Ask) -> Tree:
    """After a contaminated start: is decoding to blame as well?"""
    handed = replace(ref.run, prefill="ref", dump_prefill=False)
    dut_run = run_side(dut, handed, fed=ref_run.fed, start=ref_run.start)
    decoded = {
        name: [entry for entry in entries if entry.key.pos >= handed.start]
        for name, entries in ref_run.dump.segments.items()
    }
    ref_dump = replace(ref_run.dump, segments=decoded)
    tree = compare_dumps(ref_dump, dut_run.dump, level_asked=ask.level)
    tree.run = run_facts(handed, ref_run.fed)
    if tree.verdict is Verdict.DIVERGED and tree.first is not None:
        starts = (replace(ref, run=handed), start_of(dut, handed, dut_run))
        explain(tree, starts, (ref_dump, dut_run.dump))
    return tree
