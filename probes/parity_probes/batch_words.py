"""What ``isodiff --batch`` says: verdict, headline, facts and table of all batches together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from parity.runs.probe import Ask, Batch, Found, Mate, Planted
from parity.status import Verdict
from parity_probes.batch_cases import COPIES, DECODE, KINDS, RAGGED
from parity_probes.blocks import listed
from parity_probes.costs import path_text, speed_text
from parity_probes.moves import move_facts

if TYPE_CHECKING:
    from parity_probes.batches import Problem, Tally


def found_of(name: str, ask: Ask, tally: Tally) -> Found:
    """The result of the probe."""
    problem = tally.worst
    found = _passed(name, ask, tally) if problem is None else _failed(name, tally, problem)
    found.compared, found.batches = tally.keys, _batches(tally, problem)
    found.costs = list(tally.costs.values())
    found.controls = [
        Planted(f"a planted fault, seed {tally.seed}", one.fired, one.text)
        for one in tally.controls
    ]
    return found


def _batches(tally: Tally, problem: Problem | None) -> list[Batch]:
    """All batches; the one that the verdict tells of is marked."""
    if problem is None:
        return tally.batches
    telling = _names(problem)
    return [
        replace(one, telling=one.seed == tally.seed and _named(one) == telling)
        for one in tally.batches
    ]


def _named(batch: Batch) -> tuple[int, str, int]:
    return batch.b, batch.neighbours, batch.place


def _names(problem: Problem) -> tuple[int, str, int]:
    return problem.case.b, problem.case.neighbours, problem.case.place


def _passed(name: str, ask: Ask, tally: Tally) -> Found:
    """Every sequence equal: the same, if something was batched and the controls fired."""
    sizes = listed([b for b in ask.sizes if b > 1] or ask.sizes)
    sequences = f"{tally.equal_sequences:,} of {tally.sequences:,} sequences"
    verdict = Verdict.SAME
    headline = f"B = {sizes}: {sequences}, {tally.equal:,} of {tally.keys:,} keys"
    brief = f"B {sizes}, {sequences}, control fired"
    looped = [b for b, cost in tally.costs.items() if not cost.batched]
    dead = [control for control in tally.controls if not control.fired]
    if tally.untapped:
        verdict, headline, brief = Verdict.DIVERGED, tally.untapped, tally.untapped
    elif not tally.batches:
        verdict = Verdict.NOT_RUN
        headline = brief = f"B = {sizes}: a batch of one: nothing was batched"
    elif looped:
        verdict = Verdict.NOT_RUN
        headline = f"B = {listed(looped)}: as many calls as sequences alone: nothing was batched"
        brief = headline
    elif dead:
        verdict, headline = Verdict.NOT_RUN, f"the control {dead[0].text}"
        brief = headline
    found = Found(name, verdict, headline, list(_facts(tally)), brief=brief)
    if verdict is Verdict.DIVERGED:
        found.failing = f"--seed {tally.seed}"
    return found


def _failed(name: str, tally: Tally, problem: Problem) -> Found:
    """A problem: the smallest B, whose neighbours, the first key and the op behind it."""
    case = problem.case
    where = f"B = {case.b}, {case.neighbours}, sequence {problem.at}"
    headline = f"{where} ({_padded(problem.length, case.padding(problem.at))}); {problem.what}"
    brief = f"{where}, {problem.what.removeprefix('first key ')}"
    verdict, facts = problem.verdict, []
    if tally.unstable:
        verdict, headline = Verdict.UNSTABLE, f"{tally.unstable}; at first {headline}"
        brief = tally.unstable
    elif tally.cause:
        facts.append(("cause", f"{tally.cause}; every key of the sequence before it is equal"))
    facts += [("calls", tally.calls)] if tally.calls else []
    facts += [*move_facts(tally.moved), *_facts(tally)]
    if verdict is Verdict.DIVERGED:
        facts.append(("control", "not needed: the run is red by itself"))
    length = max(1, tally.lengths[0] - DECODE)
    failing = f"--m {case.b} --pos {length}:{length} --seed {tally.seed}"
    found = Found(name, verdict, headline, facts, first=problem.first, failing=failing, brief=brief)
    found.smallest, found.moved = case.b, tally.moved
    if verdict is not Verdict.NOT_RUN:
        found.table = list(_table(tally))
    return found


def _padded(length: int, padding: int) -> str:
    return (
        f"{length:,} tokens, {f'{padding:,} of padding before them' if padding else 'no padding'}"
    )


def _facts(tally: Tally) -> Iterator[tuple[str, str]]:
    if not tally.batches:
        return
    yield "beside", _neighbours(tally.batches)
    if told := _padding(tally.batches):
        yield "padding", told
    if all(_comparable(tally.batches, kind) for kind in KINDS):
        yield "contents", _contents(tally.batches)
        yield "place", _places(tally)
    length, long = tally.lengths
    together = f"{length - DECODE:,} tokens in one forward, {DECODE} more one a forward"
    yield "lengths", f"{together}; ragged: beside {long:,} in all"
    if tally.costs:
        yield "path", _path(tally)
        yield "speed", speed_text(list(tally.costs.values())).replace("M = ", "B = ")
    else:
        yield "path", "the engine has no counters: that a batch ran as one is not shown"
    if tally.controls:
        yield "control", "; ".join(control.text for control in tally.controls)


def _path(tally: Tally) -> str:
    """The evidence that sequences ran together."""
    cost = tally.costs[max(tally.costs)]
    text = path_text(cost).replace("one forward of", "a batch of").replace(" rows", " copies")
    return text.replace("single steps", "alone").replace("row by row", "one by one")


def _smallest(batches: list[Batch], kind: str) -> int | None:
    failing = [one.b for one in batches if one.neighbours == kind and _differs(one)]
    return min(failing, default=None)


def _differs(batch: Batch) -> bool:
    """Whether anything in it is not equal."""
    return bool(batch.contents) or any(_mate_differs(mate) for mate in batch.mates)


def _mate_differs(mate: Mate) -> bool:
    return bool(mate.keys or mate.logits)


def _neighbours(batches: list[Batch]) -> str:
    """With which neighbours a sequence differs from itself alone, and from which B on."""
    texts = []
    for kind in KINDS:
        b = _smallest(batches, kind)
        word = "equal" if _comparable(batches, kind) else "not comparable"
        texts.append(f"{kind} {word}" if b is None else f"{kind} differ from B = {b}")
    return "; ".join(texts)


def _comparable(batches: list[Batch], kind: str) -> bool:
    return all(one.verdict is not Verdict.NOT_RUN for one in batches if one.neighbours == kind)


def _padding(batches: list[Batch]) -> str:
    """Whether the batch's size is enough for a difference, or it takes padding."""
    plain = [b for kind in KINDS if kind != RAGGED and (b := _smallest(batches, kind))]
    ragged = [mate for one in batches if one.neighbours == RAGGED for mate in one.mates]
    told, wrong = [], 0
    for what, mates in (
        ("with", [mate for mate in ragged if mate.padding]),
        ("without", [mate for mate in ragged if not mate.padding]),
    ):
        differ = [mate for mate in mates if _mate_differs(mate)]
        wrong += len(differ)
        first = f", first at {differ[0].first}" if differ and differ[0].first else ""
        told.append(f"{len(differ)} of {len(mates)} {what} padding differ{first}")
    if not plain and not wrong:
        return ""
    beside = f"in ragged batches {'; '.join(told)}"
    if plain:
        return f"not needed: sequences of one length differ from B = {min(plain)}; {beside}"
    return f"needed: sequences of one length are equal; {beside}"


def _contents(batches: list[Batch]) -> str:
    wrong = [one for one in batches if one.contents]
    if not wrong:
        return "the tokens of the neighbours change nothing"
    one = wrong[0]
    return f"B = {one.b}, {one.neighbours}: {one.contents} changes with the neighbours' tokens"


def _places(tally: Tally) -> str:
    unlike = [f"B = {b}, {kind}" for (b, kind), alike in tally.places.items() if not alike]
    if unlike:
        return f"the sequence has other bits at the last index than at 0: {'; '.join(unlike)}"
    return "the sequence has the same bits at index 0 and at the last"


def _table(tally: Tally) -> Iterator[str]:
    """A line for the smallest batch of each kind and place that differs."""
    yield f"{'B':>3}  {'neighbours':<13}  {'at':>4}  {'differ':<8}  first key"
    told: set[tuple[str, bool]] = set()
    for one in sorted(tally.batches, key=lambda batch: batch.b):
        wrong = [mate for mate in one.mates if _mate_differs(mate)]
        kind = one.neighbours, one.place == 0
        if not (wrong or one.contents) or kind in told:
            continue
        told.add(kind)
        at = "all" if one.neighbours == COPIES else "last" if one.place else "0"
        first = _first_text(wrong[0]) if wrong else f"{one.contents} (with the contents)"
        differ = f"{len(wrong)} of {one.b}"
        yield f"{one.b:>3}  {one.neighbours:<13}  {at:>4}  {differ:<8}  {first}"


def _first_text(mate: Mate) -> str:
    return f"{mate.first or 'none: the logits alone'} in sequence {mate.index}"
