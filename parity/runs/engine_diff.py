"""``parity diff``: run both sides, compare, and explain the first differing key."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile

from parity.builds.provenance import code_notes
from parity.comparison.compare import compare_dumps
from parity.comparison.impossible import one_hash_notes
from parity.comparison.matching import Apart
from parity.comparison.parting import label_parting
from parity.comparison.states import compare_states, differing_rows, differing_weights
from parity.dump import Dump
from parity.dumps.table import tables
from parity.errors import NotRunError
from parity.explain.births import name_births
from parity.explain.dataflow import ROW_PARTS
from parity.explain.drill import Start, input_rows, key_elements
from parity.explain.forcing import Forcing
from parity.explain.margin import Choices, measure
from parity.explain.orders import add_orders
from parity.explain.retrace import Found, Retrace, Wanted
from parity.keys import Key
from parity.runs.control import bound_control, dump_control, inject_control
from parity.runs.profiling import add_profile, bits_expected, judge
from parity.runs.run import Run, Side, SideRun, run_side, tokens_for_dut
from parity.runs.stability import RUNS, call_unstable, unlike_state
from parity.runs.stopped import kept_when_stopped
from parity.status import Level, Verdict
from parity.tree import CONTAMINATED, Stability, StateDiff, Tree


@dataclass(frozen=True)
class Ask:
    """What the user wants of a comparison beside the run itself. ``typed``: whether a level was
    asked for; else a pair of different arithmetic is judged at GREEDY. ``profile``: measure how far
    apart the sides are, whatever they compute in. ``orders``: reveal how both sides add where they
    begin to differ."""

    level: Level = Level.BIT
    reproduce: str = ""
    seed: int = 0
    typed: bool = True
    profile: bool = False
    orders: bool = False


def diff_engines(ref: Side, dut: Side, run: Run, ask: Ask) -> Tree:
    """Both sides are engines with the model loaded; ``run`` holds the settings for both."""
    began = time.monotonic()
    expected = bits_expected(ref, dut)
    if not (expected or ask.typed):
        ask = replace(ask, level=Level.GREEDY)
    if run.prefill == "ref":
        need_states(ref, dut)
    ref_run = run_side(ref, run)
    fed = tokens_for_dut(run, ref_run.fed)
    start = ref_run.start if run.prefill == "ref" else None
    with kept_when_stopped(ref_run.dump, ask.level, ask.reproduce):
        dut_run = run_side(dut, run, fed=fed, start=start)
    tree = compare_dumps(ref_run.dump, dut_run.dump, level_asked=ask.level)
    tree.run = run_facts(run, ref_run.fed)
    tree.reproduce = ask.reproduce
    tree.notes += one_hash_notes(ref_run.dump, dut_run.dump)
    label_parting(tree, ref_run.dump, dut_run.dump)
    starts = (start_of(ref, run, ref_run), start_of(dut, run, dut_run))
    dumps = ref_run.dump, dut_run.dump
    if not expected and ask.level is Level.GREEDY and tree.verdict is Verdict.DIVERGED:
        agreed = judge(tree, starts, (ref_run, dut_run), _flips(tree, starts))
        if agreed is not None:
            tree.control = bound_control(starts, dumps, agreed, ask.seed)
            _judge_control(tree, dut.spec)
    else:
        _by_bits(tree, starts, (ref_run, dut_run), ask)
        if (ask.profile or not expected) and tree.verdict in (Verdict.SAME, Verdict.DIVERGED):
            add_profile(tree, starts, dumps)
    add_code_notes(tree)
    tree.seconds = time.monotonic() - began
    return tree


def tell_orders(tree: Tree, ref: Side, dut: Side) -> None:
    """How both sides add where they begin to differ, in the run and in a decoding of its own."""
    began = time.monotonic()
    for shown in (tree, tree.decode):
        if shown is not None and shown.verdict in (Verdict.SAME, Verdict.DIVERGED):
            add_orders(shown, (ref.engine, dut.engine))
    tree.seconds += time.monotonic() - began


def _by_bits(
    tree: Tree, starts: tuple[Start, Start], runs: tuple[SideRun, SideRun], ask: Ask
) -> None:
    """States and weights decide too; a red run is explained, a green one has its control."""
    (ref_run, dut_run), (ref, dut) = runs, (start.side for start in starts)
    add_states(tree, ref_run, dut_run)
    add_weights(tree, ref, dut)
    contaminated = tree.reason == CONTAMINATED
    if tree.verdict is Verdict.DIVERGED:
        forcing = explain(tree, starts, (ref_run.dump, dut_run.dump), anew=contaminated)
        if contaminated and tree.verdict is Verdict.DIVERGED:
            known = None if starts[0].run.dump_prefill else forcing  # details stand at other keys
            with noted_where_not_tried(tree):
                tree.decode = _decode_from_ref(starts[0], ref_run, dut, ask, known)
    if tree.verdict is Verdict.SAME:
        check_control(tree, starts[1], ref_run.dump, dut_run.dump, ask.seed)


def add_code_notes(tree: Tree) -> None:
    """Say whether the sides ran one compiled code: then the comparison shows less than it seems."""
    if tree.verdict in (Verdict.SAME, Verdict.DIVERGED):
        tree.notes += code_notes(tree.ref, tree.dut, equal=tree.verdict is Verdict.SAME)


def finish_dumps(tree: Tree, ref: Dump, dut: Dump, ask: Ask, *, apart: Apart | None = None) -> Tree:
    """A comparison in which a side is no engine: control at dump level, no drill-down."""
    tree.reproduce = ask.reproduce
    tree.notes += one_hash_notes(ref, dut)
    label_parting(tree, ref, dut, apart)
    if tree.verdict is Verdict.SAME:
        tree.control = dump_control(ref, dut, ask.seed)
        _judge_control(tree, dut.source)
    if any(tree.ref.get(name) != tree.dut.get(name) for name in ("tier", "variants")):
        add_code_notes(tree)  # a later run of the same settings is meant to have the same code
    return tree


def start_of(side: Side, run: Run, done: SideRun) -> Start:
    """Where reruns of ``side`` begin after ``done``."""
    return Start(side, run, done.fed, done.start, done.end)


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


def explain(
    tree: Tree,
    starts: tuple[Start, Start],
    dumps: tuple[Dump, Dump],
    *,
    anew: bool = False,
    forcing: Forcing | None = None,
) -> Forcing:
    """Rerun both sides: a side that differs from itself makes the run unstable; else the births
    are named. ``anew``: rerun the prefill too, where it was not dumped. ``forcing``: what was
    replayed before on the same run of the ref; returns it with what was added."""
    wanted = Wanted(_first_key(tree), _flips(tree, starts), forcing=forcing)
    found = Retrace(starts, dumps, wanted).whole(anew=anew)
    if anew and not starts[0].run.dump_prefill and not found.stability.side:
        _search_prompt(found, starts, dumps)
    _settle(tree, starts, found, wanted)
    return found.forcing


def _search_prompt(found: Found, starts: tuple[Start, Start], dumps: tuple[Dump, Dump]) -> None:
    """Of a prompt that was not dumped, replay the position that first left another row behind; its
    last one where only S or hist differ, which do not tell the position."""
    if not found.visits:  # the sides could not be set against each other at all
        return
    rows = differing_rows(*(start.state or {} for start in starts))
    by_position = [rows[name][0] for name in rows if name.rpartition("_")[2] in ROW_PARTS]
    pos = min(by_position, default=starts[0].run.start - 1)
    found.add_before(Retrace(starts, dumps, Wanted()).one(pos))
    which = "the first that left another row" if by_position else "its last position"
    text = f"of the prompt t{pos} alone was searched, {which} (--dump-prefill: all of it)"
    found.lacking.append(text)


def explain_layer(
    tree: Tree, starts: tuple[Start, Start], dumps: tuple[Dump, Dump], first: Key
) -> None:
    """Name the births in the layer and at the position of ``first``, and rerun nothing else."""
    wanted = Wanted(first, _flips(tree, starts), (first.pos, first.layer))
    _settle(tree, starts, Retrace(starts, dumps, wanted).one(first.pos), wanted)


def _settle(tree: Tree, starts: tuple[Start, Start], found: Found, wanted: Wanted) -> None:
    """Put into ``tree`` what a retrace found."""
    if found.stability.side:
        call_unstable(tree, found.stability)
        return
    if wanted.layer is None:  # of a search, one layer alone was run twice
        tree.stability = found.stability
    key, run = wanted.first, starts[0].run
    visit = None if key is None else found.visit(key.pos)
    # The first key of a contaminated run is a false lead, unless it stands in the prompt.
    if key is not None and visit is not None and (tree.reason != CONTAMINATED or run.dump_prefill):
        tree.inputs = input_rows(run, key, visit.ref, visit.dut)
        tree.elements = key_elements(key, *found.tensors)
    name_births(tree, found, starts, wanted.layer)
    margins = dict(found.margins)
    for pos, choices in list(wanted.flips.items())[:1]:
        if pos not in margins:  # the last position of a prompt, or not in the layer of a search
            ref, dut = (start.step_at(pos, fields=()).logits for start in starts)
            margins[pos] = measure(pos, choices, ref, dut)
    tree.margins = [margins[pos] for pos in sorted(margins)]


def unstable_start(starts: tuple[Start, Start]) -> Stability | None:
    """The side that another prefill leaves in another state than its first one, if any."""
    for start in starts:
        start.go_to(start.run.start, anew=True)
        place = unlike_state(start.state, start.side.read_state())
        if place:
            return Stability(RUNS, start.side.role, place, RUNS)
    return None


def _first_key(tree: Tree) -> Key | None:
    return None if tree.first is None else Key.parse(tree.first)


def _flips(tree: Tree, starts: tuple[Start, Start]) -> dict[int, Choices]:
    """Positions with another greedy choice that both sides made after the same tokens; the first
    one in any case."""
    pairs = zip(starts[0].tokens, starts[1].tokens, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    rows = [row for row in tree.greedy if row[1] != row[2]]
    return {pos: (ref, dut) for at, (pos, ref, dut) in enumerate(rows) if not at or pos < common}


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
    tensors = "1 tensor" if len(names) == 1 else f"{len(names):,} tensors"
    text = f"weights differ in {tensors}, first {names[0]}"
    tree.notes = [note for note in tree.notes if not note.startswith("weights differ")] + [text]
    if tree.verdict is Verdict.SAME:
        _diverge(tree, text)


@contextmanager
def noted_where_not_tried(tree: Tree) -> Iterator[None]:
    """Decoding from the ref's state only adds to a red tree: where the dut cannot, it says so."""
    try:
        yield
    except NotRunError as error:
        tree.notes.append(f"decoding from the ref's state was not tried: {error.message}")


def _decode_from_ref(
    ref: Start, ref_run: SideRun, dut: Side, ask: Ask, forcing: Forcing | None
) -> Tree:
    """After a contaminated start: is decoding to blame as well?"""
    handed = replace(ref.run, prefill="ref", dump_prefill=False)
    dut_run = run_side(dut, handed, fed=ref_run.fed, start=ref_run.start)
    decoded = {
        name: table.select(table.pos >= handed.start)
        for name, table in tables(ref_run.dump).items()
    }
    ref_dump = replace(ref_run.dump, segments=decoded)
    tree = compare_dumps(ref_dump, dut_run.dump, level_asked=ask.level)
    tree.run = run_facts(handed, ref_run.fed)
    if tree.verdict is Verdict.DIVERGED:
        starts = (replace(ref, run=handed), start_of(dut, handed, dut_run))
        explain(tree, starts, (ref_dump, dut_run.dump), forcing=forcing)
    return tree
