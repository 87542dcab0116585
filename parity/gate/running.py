"""A whole gate: seed by seed equality and timed rounds, then the statistics and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from parity.builds.provenance import same_code
from parity.errors import InputError, NotRunError
from parity.gate.equality import Problem, Seed, check_seed
from parity.gate.settings import Settings
from parity.gate.statistics import Interval
from parity.gate.summary import ALL, Timing, corrected_intervals, summarise
from parity.gate.timing import Pair, Round, time_seed
from parity.gate.verdict import Decision, GateVerdict, decide
from parity.runs.run import Run, Side

NEEDS = ("rows", "state")
OpenPair = Callable[[Run], tuple[Side, Side]]


@dataclass
class Gate:
    """What a gate found. ``headers``: of base and candidate. ``timings``: by M, and ALL; none
    where the candidate was refused; ``corrected``: the intervals by M that hold together.
    ``identical``: both run the same code, settings included."""

    seeds: list[Seed] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    headers: tuple[dict[str, str], dict[str, str]] = field(default_factory=lambda: ({}, {}))
    identical: bool = False
    problem: Problem | None = None
    timings: dict[int, Timing] = field(default_factory=dict)
    corrected: dict[int, Interval] = field(default_factory=dict)
    decision: Decision = field(default_factory=lambda: Decision(GateVerdict.UNDECIDED, ""))


def run_gate(
    settings: Settings, open_pair: OpenPair, told: Callable[[int], None] = lambda _round: None
) -> Gate:
    """Run all seeds and decide. ``open_pair`` opens base and candidate with the model of a run;
    ``told`` hears of every timed round. Raises NotRunError where no verdict can be given."""
    gate = Gate()
    for index, run in enumerate(settings.runs):
        _run_seed(gate, settings, index, open_pair(run), told)
        if gate.problem is not None:
            gate.decision = Decision(GateVerdict.REFUSED, f"not equal: {gate.problem.text}")
            return gate
    gate.timings = summarise(gate.pairs, settings.sizes, settings.confidence)
    gate.corrected = corrected_intervals(gate.pairs, settings.sizes, settings.confidence)
    gate.decision = decide(gate.timings[ALL].interval, gate.corrected, identical=gate.identical)
    return gate


def _run_seed(
    gate: Gate,
    settings: Settings,
    index: int,
    sides: tuple[Side, Side],
    told: Callable[[int], None],
) -> None:
    """One seed. A function of its own: its models are let go before the next ones are loaded."""
    for side in sides:
        _require(side)
    _require_one_model(sides, settings.runs[index])
    seed = check_seed(*sides, settings.runs[index], settings.sizes)
    gate.seeds.append(seed)
    gate.problem = seed.problem
    if seed.ground is not None and seed.problem is None:
        began = 1 + sum(map(settings.rounds_of, range(index)))
        rounds = range(began, began + settings.rounds_of(index))
        timed = time_seed(seed.ground, sides, settings.sizes, rounds, told)
        gate.pairs += timed.pairs
        gate.rounds += timed.rounds
        gate.problem = timed.problem
    seed.ground = None  # its states are large
    _describe(gate, seed, sides)


def _require(side: Side) -> None:
    for need in NEEDS:
        if not side.has(need):
            what = "M > 1 cannot be checked" if need == "rows" else "the end state is not shown"
            raise NotRunError(
                f"{side.spec} lacks the capability {need!r}, needed for a gate: {what}",
                "parity engines lists what each engine offers",
            )


def _require_one_model(sides: tuple[Side, Side], run: Run) -> None:
    """Raise InputError for sides of two models, as programs may have: no state fits the other."""
    models = [side.engine.describe().get("model", run.model.label) for side in sides]
    if models[0] != models[1]:
        base, candidate = (f"{s.spec} has {model}" for s, model in zip(sides, models, strict=True))
        raise InputError(f"two models: {base}, {candidate}", "name two sides with one model")


def _describe(gate: Gate, seed: Seed, sides: tuple[Side, Side]) -> None:
    """Headers as they are when all has run: what is compiled on use is in them then."""
    told = (seed.tree.ref, seed.tree.dut)
    base, candidate = (
        {**header, **side.engine.describe()} for header, side in zip(told, sides, strict=True)
    )
    gate.headers = (base, candidate)
    gate.identical = identical(sides, gate.headers)


def identical(sides: tuple[Side, Side], headers: tuple[Mapping[str, str], ...]) -> bool:
    """Whether both sides are one engine with the same options, and with the same compiled code or
    the same tier and variants: a difference in time is noise then."""
    engines = [side.engine for side in sides]
    told = [getattr(engine, "settings", None) for engine in engines]
    if type(engines[0]) is not type(engines[1]) or None in told:
        return sides[0].spec == sides[1].spec
    options = [dict(one.options) for one in told if one is not None]
    chosen = [(one.tier, one.variants) for one in told if one is not None]
    return options[0] == options[1] and (chosen[0] == chosen[1] or same_code(*headers))
