"""What ``parity isolate`` does: the diff, then the parts asked for, as data in the tree."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from parity.builds.provenance import code_text
from parity.dump import MAIN, Dump
from parity.errors import NotRunError, ParityBug
from parity.explain.drill import Start
from parity.isolate.delta import Search, find_guilty
from parity.isolate.interplay import find_interplay, smaller_guilty
from parity.isolate.placement import Decode, place_groups
from parity.isolate.transplant import RUNGS, Surgery, ladder, parse_keys, step_by_step
from parity.isolate.trial_cache import Outcome, TrialCache
from parity.isolate.trials import Trials, Trusted, first_place, in_contract_order
from parity.keys import Key, KeyOrder
from parity.progress import Progress
from parity.registry import require
from parity.runs.engine_diff import Ask, diff_engines
from parity.runs.run import Run, Side, run_side
from parity.runs.sides import open_sides
from parity.spec import EngineSpec
from parity.status import Verdict
from parity.tree import CONTAMINATED, Births, Isolation, Placement, Transplant, Tree, Trial
from parity.variants import ACTS_ON

PARTS = ("variants", "placement", "transplant")
# What each part needs of ref and dut, beside what a run needs.
NEEDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "variants": ((), ()),
    "placement": (("state", "replay"), ("state", "replay")),
    "transplant": (("capture",), ("replay",)),
}
MANY = 8  # birthplaces that are listed as one transplant; of more only the outcome is told


@dataclass(frozen=True)
class Wanted:
    """``parts``: of PARTS; ``asked``: named by the user, so that one which cannot be run is no
    note but an error. ``keys``: to transplant, as typed. ``cache``: use kept results."""

    parts: tuple[str, ...] = PARTS
    asked: bool = False
    keys: tuple[str, ...] = ()
    cache: bool = True


@dataclass
class _Draft:
    """The fields of an Isolation, while they are found."""

    variants: list[str] = field(default_factory=list)
    guilty: list[str] = field(default_factory=list)
    needed: list[str] = field(default_factory=list)
    reason: str = ""
    trials: list[Trial] = field(default_factory=list)
    ladder: list[Trial] = field(default_factory=list)
    interactions: list[str] = field(default_factory=list)
    runs: int = 0
    placements: list[Placement] = field(default_factory=list)
    transplants: list[Transplant] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def made(self) -> Isolation:
        return Isolation(**vars(self))


@dataclass(frozen=True)
class _Job:
    """One isolation. ``run``: as typed; ``trusted``: the ref's run that all is held against."""

    tree: Tree
    run: Run
    trusted: Trusted
    draft: _Draft

    @property
    def handed(self) -> Run:
        """The decoding alone, from the ref's state."""
        return replace(self.run, prefill="ref", dump_prefill=False)

    @property
    def decoded(self) -> Dump:
        """The decoded part of the ref's dump."""
        dump = self.trusted.done.dump
        entries = [entry for entry in dump.entries if entry.key.pos >= self.run.start]
        return replace(dump, segments={MAIN: entries})


def isolate_engines(
    specs: tuple[EngineSpec, EngineSpec], run: Run, ask: Ask, wanted: Wanted, progress: Progress
) -> Tree:
    """The diff of two engines with ``Tree.isolation`` filled; its verdict is the diff's, while its
    seconds are those of all that was done.

    Raises InputError for a key to transplant that the run does not make, NotRunError where a part
    that was asked for by name cannot be run.
    """
    began = time.monotonic()
    keys = parse_keys(wanted.keys, run)
    ref, dut = open_sides(specs, run, progress)
    for part in wanted.parts if wanted.asked else ():
        _require(part, ref, dut)
    tree = diff_engines(ref, dut, run, ask)
    draft = _Draft()
    if tree.verdict in (Verdict.SAME, Verdict.DIVERGED):
        job = _Job(tree, run, _trusted(ref, run, tree), draft)
        if "placement" in wanted.parts:
            _attempt("placement", wanted, draft, lambda: _place(job, dut))
        if "transplant" in wanted.parts:
            _attempt("transplant", wanted, draft, lambda: _transplant(job, dut, keys))
        del dut  # a trial loads the model once more: make room first
        if "variants" in wanted.parts:
            cache = TrialCache.open(wanted=wanted.cache)
            _remove_variants(job, Trials(specs[1], job.trusted, cache, progress))
    else:
        draft.reason = f"not asked: the verdict is {tree.verdict}"
    tree.isolation = draft.made()
    tree.seconds = time.monotonic() - began
    return tree


def _require(part: str, ref: Side, dut: Side) -> None:
    """NotRunError naming a capability that a side lacks for ``part``."""
    for side, names in zip((ref, dut), NEEDS[part], strict=True):
        for name in names:
            require(side.engine, name, part)


def _attempt(part: str, wanted: Wanted, draft: _Draft, work: Callable[[], None]) -> None:
    """Do ``work``; where it cannot be done, that is a note unless the part was asked for."""
    try:
        work()
    except NotRunError as error:
        if wanted.asked:
            raise
        draft.notes.append(f"{part} not run: {error.message}")


def _trusted(ref: Side, run: Run, tree: Tree) -> Trusted:
    """The ref's run, once more. After a contaminated start with the prompt's keys too: only they
    show where the arithmetic parts."""
    whole = run
    if tree.reason == CONTAMINATED and not run.dump_prefill:
        whole = replace(run, dump_prefill=True)
    return Trusted(ref, whole, run_side(ref, whole))


# --- variants -------------------------------------------------------------------------------------


def hints(variants: Sequence[str], births: Iterable[Births]) -> tuple[list[str], list[str]]:
    """(variants that may be the only cause, variants that may be among several) by what is born.

    The only cause must be able to act on each field that is born; a variant that no table knows may
    act on any. Without births: all, and none.
    """
    born = {Key.parse(birth.key).field for found in births for birth in found.found}
    if not born:
        return list(variants), []
    fields = {name: ACTS_ON.get(name, frozenset(born)) for name in variants}
    alone = [name for name in variants if born <= fields[name]]
    return alone, [name for name in variants if born & fields[name]]


def _remove_variants(job: _Job, trials: Trials) -> None:
    draft, tree = job.draft, job.tree
    draft.variants = list(trials.variants)
    if trials.lacking:
        draft.notes.append(f"the ref runs variants that the dut lacks: {', '.join(trials.lacking)}")
    if not trials.variants:
        shared = ", ".join(in_contract_order(trials.always))
        draft.reason = f"the ref runs the dut's too: {shared}" if shared else "the dut runs none"
        return
    if job.trusted.run is job.run:
        _know_red_run(trials, tree)
    red = tree.verdict is Verdict.DIVERGED
    search = Search(trials.variants, trials.differs, red=red)
    spent = Counter[str]()
    guilty: list[str] | None = []
    if red:
        births = [found.births for found in (tree, tree.decode) if found and found.births]
        with trials.counted(spent, "to find the guilty"):
            guilty = find_guilty(search, *hints(trials.variants, births))
    else:
        draft.reason = "nothing differs"
    if guilty is None:
        with trials.counted(spent, "for the halves"):
            _unexplained(draft, trials)
    else:
        _settle(draft, search, trials, guilty, spent)
    draft.trials, draft.runs = list(trials.made.values()), trials.runs
    if spent.total() != trials.runs:
        raise ParityBug(f"isolate: {trials.runs} runs were made, {spent.total()} accounted for")
    told = (_counted(spent, draft.trials), trials.code_note())
    draft.notes = [*filter(None, told), *trials.cache.notes, *draft.notes]


def _know_red_run(trials: Trials, tree: Tree) -> None:
    """The run that the tree tells of is the trial with every variant."""
    counts, everything = tree.counts, frozenset(trials.variants)
    first = first_place(tree, trials.trusted.run)
    code = code_text(tree.dut)
    trials.know(everything, Outcome(first, counts.total - counts.same, counts.total, code))


def _unexplained(draft: _Draft, trials: Trials) -> None:
    """What removing each half does, and what is left without any."""
    names = list(trials.variants)
    half = (len(names) + 1) // 2
    for kept in (names[half:], names[:half]):
        trials.trial(kept)
    without = "any of them" if len(names) > 1 else names[0]
    draft.reason = (
        f"without {without} the run still differs, first at {trials.trial(()).first}: "
        "something else is the cause, or one more"
    )


def _settle(
    draft: _Draft, search: Search, trials: Trials, guilty: list[str], spent: Counter[str]
) -> None:
    """Find out how the variants act together, and climb the ladder: the guilty ones removed in the
    order in which they act, the latest named last. Begins again where that shows that fewer do.

    The run with every variant is a rung; after a contaminated start it is made for that."""
    smaller: list[str] | None = guilty
    while smaller is not None:
        guilty = smaller
        with trials.counted(spent, "for interactions"):
            interplay = find_interplay(search, guilty, trials.same_place)
        with trials.counted(spent, "for the ladder"):
            guilty = sorted(guilty, key=trials.place_of) if len(guilty) > 1 else guilty
            for count in range(len(guilty)):
                search.equal_without(guilty[:count])
        with trials.counted(spent, "for interactions"):
            smaller = smaller_guilty(search, guilty, interplay)
    draft.guilty, draft.needed = search.in_order(guilty), interplay.needed
    draft.interactions = [str(interaction) for interaction in interplay.found]
    with trials.counted(spent, "for the ladder"):
        for count in range(len(guilty) + 1 if guilty else 0):
            removed = guilty[:count]
            trial = trials.trial(set(trials.variants) - set(removed))
            draft.ladder.append(replace(trial, removed=removed))


def _counted(spent: Mapping[str, int], trials: Sequence[Trial]) -> str:
    """``runs of the dut after the red one: 4 to find the guilty, 3 for interactions, ...``."""
    parts = ", ".join(f"{count} {what}" for what, count in spent.items())
    known = sum(trial.cached for trial in trials)
    cached = f"; {known} trial{'s' if known > 1 else ''} known from before" if known else ""
    return f"runs of the dut after the red one: {parts}{cached}"


# --- placement and transplant ---------------------------------------------------------------------


def _place(job: _Job, dut: Side) -> None:
    ref, done = job.trusted.side, job.trusted.done
    _require("placement", ref, dut)
    decode = Decode(ref, dut, job.handed, done.start or {}, done.fed, job.decoded)
    placed = place_groups(decode)
    job.draft.placements = placed.rows
    job.draft.notes += placed.notes


def _transplant(job: _Job, dut: Side, keys: Sequence[Key]) -> None:
    ref, done, draft = job.trusted.side, job.trusted.done, job.draft
    _require("transplant", ref, dut)
    tree, run, dump = job.tree, job.run, done.dump
    if job.tree.decode is not None and not job.run.dump_prefill:
        tree, run, dump = job.tree.decode, job.handed, job.decoded
        draft.notes.append("transplants: decoded from the ref's state, for the start differs")
    start = Start(ref, job.trusted.run, done.fed, done.start)
    surgery = Surgery(start, dut, run, done, dump)
    if keys:
        draft.transplants = step_by_step(surgery, keys)
    else:
        draft.transplants = ladder(surgery, tree.first)
        if len(draft.transplants) == RUNGS and draft.transplants[-1].first is not None:
            draft.notes.append(f"the ladder of transplants ends after {RUNGS} keys")
    if tree.births is not None and tree.births.found:
        _prove_births(draft, surgery, tree.births)
    if surgery.runs:
        draft.notes.append(f"transplants took {surgery.runs} runs of the dut")


def _prove_births(draft: _Draft, surgery: Surgery, births: Births) -> None:
    """With the ref's tensors at every birthplace nothing is left that could differ."""
    keys = sorted((Key.parse(birth.key) for birth in births.found), key=KeyOrder())
    made = surgery.transplant(keys)
    if len(keys) <= MANY and made.keys not in [other.keys for other in draft.transplants]:
        draft.transplants.append(made)
    told = f"the ref's tensors at {'all' if births.complete else 'the'} {len(keys)} birthplaces"
    if made.first is None:
        draft.notes.append(f"{told} make the run equal: nothing else brings a difference")
    else:
        draft.notes.append(f"{told} leave {made.differ:,} keys that differ, first {made.first}")
