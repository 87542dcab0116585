"""Probes: one claim about one engine each, and what a run of one found.

A probe compares through ``parity.comparison``; it prints nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from parity.errors import InputError
from parity.kinds import misfit
from parity.model.generator import prompt_tokens
from parity.model.model import Model
from parity.runs.run import Side
from parity.status import Verdict

FORMAT = "parity-probe"
VERSION = 5  # 5 tells how far what differs moved, batches, and the run with other settings
OLDEST = 3  # told no blocks, drafts, prompts fed and controls, and no line to make it again


@dataclass(frozen=True)
class Ask:
    """What the user wants. ``sizes``: values of M. ``starts``: first positions of a block.
    ``models``: one per seed. ``more``: further steps compared after each block. ``chunks``: sizes
    a prompt is cut into. ``reproduce``: the command line as typed. ``prompt``: the first ids that
    are fed; ``tokenizer``: digest of what made them of a text."""

    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    models: tuple[Model, ...]
    more: int = 8
    chunks: tuple[int, ...] = ()
    reproduce: str = ""
    prompt: tuple[int, ...] = ()
    tokenizer: str = ""

    def tokens(self, model: Model, count: int) -> list[int]:
        """``count`` ids to feed: the prompt's, then those that the model's seed draws."""
        drawn = prompt_tokens(int(getattr(model, "seed", 0)), count, model.config.ids)
        return [*self.prompt, *drawn[len(self.prompt) :]][:count]


@dataclass(frozen=True)
class Cost:
    """One forward of ``m`` rows against ``m`` single steps, both without a tap: seconds (best of a
    few rounds), and op calls or launches by name."""

    m: int
    rows_seconds: float
    single_seconds: float
    rows_calls: dict[str, int]
    single_calls: dict[str, int]

    @property
    def totals(self) -> tuple[int, int]:
        """Calls of the forward of M rows, calls of the M single steps."""
        return sum(self.rows_calls.values()), sum(self.single_calls.values())

    @property
    def batched(self) -> bool:
        """Whether the forward of M rows made fewer calls: else nothing was batched."""
        rows, singles = self.totals
        return rows < singles

    @property
    def row_by_row(self) -> list[str]:
        """Ops that were called as often as in single steps."""
        return sorted(
            name
            for name, count in self.rows_calls.items()
            if self.m > 1 and count and count == self.single_calls.get(name)
        )


@dataclass(frozen=True)
class Block:
    """``m`` rows from position ``pos`` on, held against as many single steps.

    ``how``: "rows"; "rows without a tap" and "single steps without a tap" are held against single
    steps with one. ``logits``, ``keys``: by row, how many logits differ as uint32 (None: the row is
    absent) and how many keys are not the same. ``state``: the first part of the state afterwards
    that differs; ``further``: the first key of a further step that does; "" where equal.
    ``asked``: False for a size that was tried to find the smallest that fails. ``telling``: the
    verdict tells of this one.
    """

    seed: int
    m: int
    pos: int
    how: str
    verdict: Verdict
    logits: list[int | None]
    keys: list[int] = field(default_factory=list)
    state: str = ""
    further: str = ""
    first: str | None = None
    asked: bool = True
    telling: bool = False


@dataclass(frozen=True)
class Mate:
    """A sequence of a batch, held against itself alone. ``index``: its place; ``length``: its own
    tokens; ``padding``: how many the batch put before them; ``logits``: how many differ as uint32
    over all its steps; ``keys``: of ``compared`` keys those that are not the same; ``first``: the
    first of them."""

    index: int
    length: int
    padding: int
    logits: int
    keys: int
    compared: int
    first: str | None = None


@dataclass(frozen=True)
class Batch:
    """``b`` sequences in one forward. ``neighbours``: "copies", "other prompts" or "ragged";
    ``place``: where the sequence that every batch has stands. ``contents``: the first key of that
    one which changes when its neighbours' tokens do, and nothing else; "" where none does, None
    where that was not compared.
    ``telling``: the verdict tells of this one."""

    seed: int
    b: int
    neighbours: str
    place: int
    verdict: Verdict
    mates: list[Mate]
    contents: str | None = None
    asked: bool = True
    telling: bool = False


@dataclass(frozen=True)
class Size:
    """How far a tensor moved, in its own ``dtype``: elements that differ, the largest distance in
    ULP (None: no two numbers differ) and the largest absolute one (None: not finite)."""

    what: str
    dtype: str
    differ: int
    total: int
    ulp: int | None
    largest: float | None


@dataclass(frozen=True)
class Moved:
    """How far what differs moved, and what that does to the greedy choice. ``first``: the first
    key's values (None: the engine hands out none); ``logits``: those that moved furthest.
    ``rows``: rows of logits compared, of which the choice ``flipped`` or is ``at_risk``: its lead
    is not larger than twice the largest move. ``closest``: the row nearest a flip, its lead and
    largest move in words; "" where no logits differ."""

    first: Size | None
    logits: Size | None
    rows: int
    flipped: int
    at_risk: int
    closest: str = ""


@dataclass(frozen=True)
class Again:
    """The same check of a red engine with other ``settings``, those under which it means no row to
    depend on its batch. ``smallest``: the smallest M or B that fails; None where none does."""

    settings: str
    verdict: Verdict
    headline: str
    first: str | None = None
    smallest: int | None = None


@dataclass(frozen=True)
class Draft:
    """``m`` tokens tried and taken back. ``what``: how many were taken again, or another check.
    ``cells``: what was compared, "" where equal. ``problem``: what is wrong, "" for nothing."""

    seed: int
    m: int
    what: str
    cells: dict[str, str]
    problem: str = ""


@dataclass(frozen=True)
class Fed:
    """A prompt in chunks of ``size``. ``way``: how they were fed. ``keys``, ``equal``: keys
    compared. ``problem``: what differs; ``refused``: why it was not run."""

    seed: int
    size: int
    way: str
    keys: int = 0
    equal: int = 0
    problem: str = ""
    refused: str = ""


@dataclass(frozen=True)
class Rule:
    """A rule that was put to the test. ``problem``: how it was broken, "" where it holds."""

    seed: int
    what: str
    problem: str = ""


@dataclass(frozen=True)
class Planted:
    """A planted fault that the probe must see. ``fired``: it was seen, at its place."""

    name: str
    fired: bool
    text: str = ""


@dataclass(frozen=True)
class Grid:
    """A table of what is equal: ``rows`` under ``heads``, the first cell of each names it."""

    heads: list[str]
    rows: list[list[str]]


@dataclass
class Found:
    """Result of one probe.

    ``lines``: published lines, printed first and never cut. ``table``: lines under the headline.
    ``facts``: label and text. ``about``: the engine that ran last, by the names of a dump's header,
    its compiled code and packages among them; empty where none was opened. ``brief``: the one line
    of ``-q`` after the verdict. ``first``: tag of the first differing key. ``failing``: the options
    that reproduce a failure. ``compared``: keys compared. ``blocks``, ``grid`` with ``drafts`` and
    ``rules``, ``fed``: what isodiff, rollback and chunks compared, one by one; ``controls``: what
    was planted. ``batches``: what isodiff --batch compared. ``moved``: how far what differs moved.
    ``smallest``: the smallest M or B that fails. ``again``: the same with other settings.
    ``command``: makes the whole run again, ``reproduce`` the failure.
    """

    name: str
    verdict: Verdict
    headline: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    first: str | None = None
    failing: str = ""
    compared: int = 0
    brief: str = ""
    table: list[str] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)
    claim: str = ""
    blocks: list[Block] = field(default_factory=list)
    grid: Grid | None = None
    drafts: list[Draft] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    fed: list[Fed] = field(default_factory=list)
    controls: list[Planted] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    moved: Moved | None = None
    smallest: int | None = None
    again: Again | None = None
    command: str = ""
    reproduce: str = ""
    seconds: float = 0.0

    def record(self) -> dict[str, Any]:
        """The object that stands in the JSON file."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    def to_json(self) -> str:
        """Versioned JSON text."""
        return json.dumps(self.record(), indent=1) + "\n"

    @classmethod
    def of_record(cls, record: dict[str, Any], where: str) -> Found:
        """Read what ``record`` gave, of this version or an older one that is known; raises
        InputError naming ``where``."""
        version = record.get("version")
        if version not in range(OLDEST, VERSION + 1):
            raise InputError(
                f"{where}: version {version} of {FORMAT}, this parity reads {OLDEST} to {VERSION}",
                "render it with the parity that wrote it",
            )
        body = {name: part for name, part in record.items() if name not in ("format", "version")}
        try:
            found = _found(body)
            misplaced = misfit(found, cls)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            problem = f"{where}: damaged: an unknown field, or a value of another kind"
            raise InputError(problem, "run the probe again") from error
        if misplaced is not None:
            problem = f"{where}: damaged: {misplaced}: a value of another kind"
            raise InputError(problem, "run the probe again")
        return found


_PARTS: dict[str, Any] = {
    **{"blocks": Block, "drafts": Draft, "rules": Rule, "fed": Fed, "batches": Batch},
    **{"controls": Planted, "costs": Cost},
}


def _found(body: dict[str, Any]) -> Found:
    parts: dict[str, Any] = {
        name: [kind(**one) for one in body.pop(name, [])] for name, kind in _PARTS.items()
    }
    for name in ("blocks", "batches"):
        parts[name] = [replace(one, verdict=Verdict(one.verdict)) for one in parts[name]]
    parts["batches"] = [
        replace(one, mates=[Mate(**mate) for mate in one.mates]) for one in parts["batches"]
    ]
    verdict, facts = Verdict(body.pop("verdict")), [(label, text) for label, text in body["facts"]]
    grid, again = body.pop("grid", None), body.pop("again", None)
    if again is not None:
        again = Again(**{**again, "verdict": Verdict(again["verdict"])})
    singles = {
        "grid": None if grid is None else Grid(**grid),
        "again": again,
        "moved": _moved(body.pop("moved", None)),
    }
    return Found(**{**body, "verdict": verdict, "facts": facts, **singles, **parts})


def _moved(body: dict[str, Any] | None) -> Moved | None:
    if body is None:
        return None
    sizes = {name: body[name] and Size(**body[name]) for name in ("first", "logits")}
    return Moved(**{**body, **sizes})


class OpenSide(Protocol):
    """Opens the engine under test with a model and room for ``positions``."""

    def __call__(self, model: Model, positions: int) -> Side:
        """A side with the model loaded."""
        ...


class Probe(Protocol):
    """One claim, found through the entry-point group ``parity.probes``."""

    name: str
    claim: str
    needs: Sequence[str]

    def run(self, open_side: OpenSide, ask: Ask) -> Found:
        """Compare and report. Capabilities in ``needs`` are checked before."""
        ...


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of several checks: any difference, else anything not run, else the same."""
    for verdict in (Verdict.DIVERGED, Verdict.UNSTABLE, Verdict.NOT_RUN):
        if verdict in verdicts:
            return verdict
    return Verdict.SAME if verdicts else Verdict.NOT_RUN
