"""Trials: runs of the dut with some of its variants, each held against the ref's run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from parity.builds.loaded import changed_since_start
from parity.builds.provenance import code_text
from parity.comparison.compare import compare_dumps
from parity.comparison.states import differing_weights
from parity.errors import InputError
from parity.isolate.delta import Kept
from parity.isolate.trial_cache import Outcome, TrialCache, code_files, dut_facts, run_facts
from parity.keys import Key, KeyOrder
from parity.progress import Progress
from parity.runs.engine_diff import add_states, add_weights
from parity.runs.run import Run, Side, SideRun, run_side, tokens_for_dut
from parity.runs.sides import chosen_variants, load_side, open_unloaded
from parity.spec import EngineSpec
from parity.status import Verdict
from parity.tree import Tree, Trial
from parity.variants import TIERS, VARIANTS


@dataclass(frozen=True)
class Trusted:
    """What every trial is held against: the ref, the settings of the run, and what it gave."""

    side: Side
    run: Run
    done: SideRun


@dataclass
class Trials:
    """Makes each trial once.

    ``always``: variants of the dut that are never removed, for the ref runs them too; ``variants``:
    those that may be; ``lacking``: those that the ref alone runs. ``runs``: how many of the trials
    were run, the others were in the cache.
    """

    spec: EngineSpec
    trusted: Trusted
    cache: TrialCache
    progress: Progress
    always: Kept = field(init=False)
    variants: tuple[str, ...] = field(init=False)
    lacking: list[str] = field(init=False)
    made: dict[Kept, Trial] = field(default_factory=dict)
    codes: dict[Kept, str] = field(default_factory=dict)
    runs: int = 0

    def __post_init__(self) -> None:
        _, self._tier, on = chosen_variants(self.spec)
        settings = getattr(self.trusted.side.engine, "settings", None)
        trusted = settings.variants if settings else frozenset[str]()
        self.always, self.lacking = on & trusted, in_contract_order(trusted - on)
        self.variants = tuple(in_contract_order(on - self.always))
        # Nothing says when the code of a user's own engine changes; and files that were changed
        # since this process began are not the code that runs in it.
        engine = type(self.trusted.side.engine), chosen_variants(self.spec)[0]
        self._keeps = not self.spec.foreign and not any(
            changed_since_start(code_files(found)) for found in engine
        )
        self._facts = run_facts(self.trusted.run, self.trusted.done)

    def differs(self, kept: Kept) -> bool:
        """Whether the dut with these of ``variants`` differs from the ref in any key or state."""
        return self.trial(kept).first is not None

    def trial(self, kept: Iterable[str]) -> Trial:
        """The trial with these of ``variants``."""
        chosen = frozenset(kept)
        if chosen not in self.made:
            outcome, cached = self._outcome(chosen)
            self.know(chosen, outcome, cached=cached)
        return self.made[chosen]

    @contextmanager
    def counted(self, spent: Counter[str], stage: str) -> Iterator[None]:
        """Add the runs made inside to ``spent`` under ``stage``."""
        before = self.runs
        yield
        spent[stage] += self.runs - before

    def same_place(self, one: str, other: str) -> bool:
        """Whether two variants, each alone, differ first at the same place."""
        return self.trial({one}).first == self.trial({other}).first

    def place_of(self, name: str) -> tuple[int, tuple[int, int, int, int]]:
        """Sort key: where a variant alone makes the first difference, from the start on; last where
        it makes none."""
        first = self.trial({name}).first
        key = key_of(first)
        if key is not None:
            return 1, KeyOrder()(key)
        place = 3 if first is None else (0 if first.startswith("start") else 2)
        return place, (0, 0, 0, 0)

    def know(self, kept: Kept, outcome: Outcome, *, cached: bool = False) -> None:
        """Take down the outcome of a trial."""
        self.made[kept] = self.told(kept, outcome, cached=cached)
        self.codes[kept] = outcome.code

    def code_note(self) -> str:
        """Whether leaving variants out led to other compiled code than the red run's; "" where no
        trial left any out."""
        everything = frozenset(self.variants)
        red = self.codes.get(everything, "")
        others = {kept: code for kept, code in self.codes.items() if kept != everything}
        if not others:
            return ""
        if not red or not all(others.values()):
            return "not known whether the trials ran other compiled code: the dut tells no digest"
        idle = [kept for kept, code in others.items() if code == red]
        if idle:
            names = ", ".join(in_contract_order(everything - max(idle, key=len)))
            return f"without {names} the same compiled code ran ({red}): nothing in it is switched"
        builds = {code.partition(" ")[0] for code in (red, *others.values())}
        if len(builds) == 1:
            return f"one build ({builds.pop()}) in every trial: a mask chooses its variants"
        return f"every trial ran other compiled code than the red run ({red})"

    def told(self, kept: Kept, outcome: Outcome, *, cached: bool = False) -> Trial:
        """A trial as the tree tells it, variants in the contract's order."""
        return Trial(
            in_contract_order(kept | self.always),
            [name for name in self.variants if name not in kept],
            outcome.first,
            outcome.differ,
            outcome.total,
            cached,
        )

    def _outcome(self, kept: Kept) -> tuple[Outcome, bool]:
        spec = respelled(self.spec, self._tier, kept | self.always)
        engine = open_unloaded(spec, self.progress)
        facts = {
            **self._facts,
            **dut_facts(engine, self._tier, kept | self.always, self.spec.options),
        }
        known = self.cache.get(facts) if self._keeps else None
        if known is not None:
            return known, True
        self.runs += 1
        side = load_side("dut", spec, engine, self.trusted.run, self.progress)
        outcome = outcome_of(self.trusted, side)
        if self._keeps:
            self.cache.put(facts, outcome)
        return outcome, False


def outcome_of(trusted: Trusted, dut: Side) -> Outcome:
    """Run the dut as the red run was made, and compare keys, states and weights."""
    run, ref = trusted.run, trusted.done
    handed = ref.start if run.prefill == "ref" else None
    done = run_side(dut, run, fed=tokens_for_dut(run, ref.fed), start=handed)
    tree = compare_dumps(ref.dump, done.dump)
    add_states(tree, ref, done)
    add_weights(tree, trusted.side, dut)
    counts = tree.counts
    first = first_place(tree, run, differing_weights(trusted.side.weights, dut.weights))
    code = code_text(done.dump.header)
    return Outcome(first, counts.total - counts.same, counts.total, code)


def first_place(tree: Tree, run: Run, weights: Iterable[str] = ()) -> str | None:
    """Where a run first differs: a key, or a place in the start, in the end state or in the
    weights; None only where the verdict is same.

    A decoded key after another start is a false lead: the start is named in its place.
    """
    places = {state.when: state.first for state in tree.states if state.first is not None}
    decoded = tree.first is None or Key.parse(tree.first).pos >= run.start
    if "start" in places and decoded:
        return f"start {places['start']}"
    if tree.first is not None or tree.verdict is Verdict.SAME:
        return tree.first
    if "end" in places:
        return f"end {places['end']}"
    return next((f"weights {name}" for name in weights), tree.reason or str(tree.verdict))


def key_of(first: str | None) -> Key | None:
    """The key in which a run first differs, where it is one."""
    if first is None:
        return None
    try:
        return Key.parse(first)
    except InputError:
        return None


def respelled(spec: EngineSpec, tier: str, variants: Kept) -> EngineSpec:
    """The spec of the same engine with just these variants on, as one would type it."""
    base = TIERS.get(tier, frozenset[str]())
    plus, minus = variants - base, base - variants
    changes = [f"+{name}" for name in in_contract_order(plus)]
    changes += [f"-{name}" for name in in_contract_order(minus)]
    options = [f"@{name}={value}" if value else f"@{name}" for name, value in spec.options.items()]
    text = "".join([spec.name, f":{spec.tier}" if spec.tier else "", *changes, *options])
    return replace(spec, text=text, plus=plus, minus=minus)


def in_contract_order(names: Iterable[str]) -> list[str]:
    """Variants as the contract lists them, an engine's own ones after them by name."""
    order = {name: place for place, name in enumerate(VARIANTS)}
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))
