"""The divergence tree: everything a comparison found, as data, with a versioned JSON form.

Compare writes it, drill-down adds to it, presenters read it and compute nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from parity.errors import InputError
from parity.kinds import misfit
from parity.orders import KeyOrders, orders_of_plain
from parity.profiles import Profile
from parity.reading import read_json
from parity.status import Level, Verdict

FORMAT = "parity-divergence"
VERSION = 4
OLDEST = 1  # told no causes; 2 no places of repeats, nothing of a baseline; 3 no profile, no orders
UNTYPED = "dtype and shape not recorded"  # how the note of a two-column dump begins
CONTAMINATED = "contaminated start"  # a reason: the sides did not start from one state
TAP_LIES = "the values are equal, the digests are not"  # how a reason begins: births are not named
EMBEDDING = "token or embedding"  # op of a birth: what layer 0 reads differs, before any op
EMBEDDED = "embedding"  # op of a birth: the row that both sides embed one token as is another
NOT_SEEN = "not seen on both sides"  # how the evidence of a birth with such inputs begins


class KeyState:
    """What became of one key. One name each, the same in every report."""

    SAME = "same"
    DIFFERS = "differs"
    MISSING = "missing"  # in ref, not in dut
    EXTRA = "extra"  # in dut, not in ref
    NOT_COMPARABLE = "not comparable"  # after a non-finite value, or after the tokens part


class Cause:
    """Why a key is what it is, once the ops were replayed on the ref's inputs."""

    BORN = "born here"  # the dut's op gives other bytes on the ref's inputs
    INHERITED = "inherited"  # the same bytes on the ref's inputs: an input brought it
    MASKED = "masked"  # equal, though an input differs: absorbed by rounding, clipping or top-k


_KEY_STATES = tuple(value for name, value in vars(KeyState).items() if name.isupper())


@dataclass(frozen=True)
class KeyRow:
    """One key, in dataflow order. ``ref``/``dut``: ``<hash16> <dtype[shape]> ...`` or None.
    ``cause``: one of Cause or "" while nobody asked; ``source``: the birthplace it comes from."""

    key: str
    state: str
    ref: str | None
    dut: str | None
    segment: str = ""
    cause: str = ""
    source: str = ""


@dataclass(frozen=True)
class ElementRow:
    """One differing element. ``ulp``: signed distance in ULP (floats) or steps (integers), + when
    the dut is larger; None when a side is NaN or the bits differ at equal values (+0, -0)."""

    index: tuple[int, ...]
    ref_hex: str
    dut_hex: str
    ref_value: str
    dut_value: str
    ulp: int | None
    kind: str  # "value", "zero sign", "NaN payload", "NaN in ref", "NaN in dut", "infinity"


@dataclass(frozen=True)
class Elements:
    """Element-level detail of one key. ``groups`` counts differing elements by leading index,
    ``blocks`` those of a tensor of one dimension by 32-block. ``signed``: of the bins of plain
    values, elements in which the dut is smaller and larger. ``places``: flat index of the first
    differing elements in C order, and +1 where the dut is larger, -1 smaller, 0 neither."""

    key: str
    ref_type: str
    dut_type: str
    total: int
    differ: int
    max_ulp: int | None
    unit: str  # "ULP" or "step"
    histogram: list[tuple[str, int]]  # bins over |ULP| and the classes; they add up to ``differ``
    groups: list[tuple[int, int]]
    rows: list[ElementRow]
    note: str = ""
    signed: list[tuple[str, int, int]] = field(default_factory=list)
    blocks: list[tuple[int, int]] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class FunctionDiff:
    """An elementary function called for a key: how many of its calls differ, on equal arguments.
    ``first_input``, ``ref_hex``, ``dut_hex``: bit patterns of the first call that differs."""

    function: str
    calls: int
    differ: int
    first_input: str
    ref_hex: str
    dut_hex: str
    max_ulp: int | None


@dataclass(frozen=True)
class Birth:
    """A place where a difference begins: on equal inputs the two sides' ops give other bytes.

    ``how``: "replay" (the dut's op ran on the ref's inputs) or "inputs" (every input is the same
    in the run itself). ``dumped``: False for a field found by the replay alone. ``state``: the
    key's KeyState in the run, "" where it was not dumped. ``clean``: no input of it differs in the
    run. ``elements``: on the ref's inputs; None beyond the first births, whose detail is kept.
    ``explained``: whether the ref's op with the dut's elementary functions gives the dut's bytes;
    None where no function differs, or that was not asked. ``evidence``: what is known of its
    inputs, where that is not what ``clean`` says; ``op`` then names all that may be wrong.
    ``weights``: names of those its op reads that differ.
    """

    key: str
    op: str
    how: str
    dumped: bool
    state: str
    clean: bool
    ref: str
    dut: str
    ref_kernels: list[str] = field(default_factory=list)
    dut_kernels: list[str] = field(default_factory=list)
    elements: Elements | None = None
    functions: list[FunctionDiff] = field(default_factory=list)
    explained: bool | None = None
    evidence: str = ""
    weights: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Births:
    """All birthplaces, and what finding them cost. ``complete``: False when a side lacks a
    capability (``reason`` names it) or the search was stopped: births may be missing. ``kernels``:
    by field what ref and dut ran for it, born or not, at the first position with a birth.
    ``sources``: by what ran, the file of the ref's text and of the dut's; empty where not told."""

    found: list[Birth]
    complete: bool
    reason: str
    reruns: int  # runs of either side
    replays: int  # steps of the dut on the ref's inputs
    kernels: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Stability:
    """A side against itself. ``runs``: of each side that was asked; ``side``: the one that is not
    repeatable, or ""; ``key``: where it first differs, in which ``run`` (from 1, run 1 is the
    one compared with). ``places``: of each further run of ``parity stable`` the first place at
    which it is not run 1, "" for one that is."""

    runs: int
    side: str = ""
    key: str = ""
    run: int = 0
    tree: Tree | None = None  # run 1 against that run, key by key
    places: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Margin:
    """The greedy choice at ``pos``: the ref's top two logits and what moved them.

    ``gap``: ULP between the ref's logits of both choices; ``ref_move``, ``dut_move``: signed ULP by
    which the dut moved the logit of the ref's and of its own choice; ``largest``: the largest move
    of another logit, in ULP of the size of these two. ``explained``: whether a near-tie
    explains the flip.
    """

    pos: int
    ref_id: int
    dut_id: int
    gap: int | None
    ref_move: int | None
    dut_move: int | None
    largest: int | None
    explained: bool
    text: str


@dataclass(frozen=True)
class Trial:
    """One run of the dut with some variants: what differs from the ref then."""

    kept: list[str]
    removed: list[str]
    first: str | None
    differ: int
    total: int
    cached: bool = False


@dataclass(frozen=True)
class Placement:
    """One op group computed by the dut inside the ref's run, on the same inputs."""

    group: str
    fields: list[str]
    first: str | None
    differ: int
    total: int


@dataclass(frozen=True)
class Transplant:
    """The ref's tensors put in place of ``keys`` in the dut's run, which then went on."""

    keys: list[str]
    first: str | None
    differ: int
    total: int


@dataclass(frozen=True)
class Isolation:
    """What ``parity isolate`` found. ``guilty``: a minimal set of variants whose removal makes the
    run equal (empty: none does; ``reason`` says why); ``ladder``: what differs after removing one
    more of them each time; ``needed``: variants that ``guilty`` needs beside it to differ at all.
    ``runs``: of the dut, after the red one."""

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


@dataclass(frozen=True)
class StatePart:
    """One part of the state (``l0_ks``, ``lengths``): rows compared and rows that differ."""

    name: str
    rows: int
    differ: int
    first_row: int | None
    note: str = ""


@dataclass(frozen=True)
class StateDiff:
    """Comparison of two states ("start" or "end"). ``first``: ``l0_ks row 3 (position 3)``."""

    when: str
    parts: list[StatePart]
    first: str | None

    @property
    def equal(self) -> bool:
        """Whether every part has the same dtype, shape and bytes."""
        return self.first is None


@dataclass(frozen=True)
class Counts:
    """How many keys each side has and what became of them."""

    ref: int
    dut: int
    same: int
    differ: int
    missing: int
    extra: int
    not_comparable: int = 0

    @property
    def total(self) -> int:
        """Keys in the union of both sides."""
        return self.same + self.differ + self.missing + self.extra + self.not_comparable


@dataclass(frozen=True)
class Control:
    """The planted fault that a green run must find. ``kind``: "inject" or "dump level"."""

    kind: str
    fired: bool
    key: str
    found: str | None
    element: int | None = None
    unit: str = "ULP"


@dataclass(frozen=True)
class Search:
    """What a bisection cost: digests read, runs of either side, and the layer it led to."""

    layer: str | None
    digests_read: int
    digests_total: int
    runs: int


@dataclass
class Tree:
    """One comparison. ``ref`` and ``dut`` are dump headers (str to str) with ``spec`` added."""

    verdict: Verdict
    first: str | None
    counts: Counts
    level: Level
    level_asked: Level
    ref: dict[str, str]
    dut: dict[str, str]
    reason: str = ""  # not_run and unstable: why; diverged: "contaminated start", ... or ""
    run: dict[str, str] = field(default_factory=dict)  # model, seed, tokens, positions, prefill
    keys: list[KeyRow] = field(default_factory=list)
    elements: Elements | None = None
    inputs: list[KeyRow] = field(default_factory=list)  # keys that feed the first one, rerun
    births: Births | None = None
    stability: Stability | None = None
    margins: list[Margin] = field(default_factory=list)
    isolation: Isolation | None = None
    repro: str = ""  # the folder that --repro wrote
    states: list[StateDiff] = field(default_factory=list)
    decode: Tree | None = None  # decode again from the ref's state, after a contaminated start
    control: Control | None = None
    search: Search | None = None
    greedy: list[tuple[int, int, int]] = field(default_factory=list)  # (position, ref, dut)
    notes: list[str] = field(default_factory=list)  # line order, unrecorded types, emulated, ...
    reproduce: str = ""
    seconds: float = 0.0
    baseline: dict[str, str] = field(default_factory=dict)  # what the ref was accepted as
    profile: Profile | None = None  # how far apart every field of every layer is
    orders: list[KeyOrders] = field(default_factory=list)  # how both sides add, key by key

    def to_json(self) -> str:
        """Versioned JSON text of this tree (UTF-8, one object)."""
        return json.dumps({"format": FORMAT, "version": VERSION, **_plain(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = "report") -> Tree:
        """Read a tree back; raises InputError naming ``where`` for any other content."""
        return cls.from_plain(read_json(text, where), where)

    @classmethod
    def from_plain(cls, body: Any, where: str = "report") -> Tree:
        """Read a tree back from the object of its JSON text, which is taken apart."""
        if not isinstance(body, dict) or body.pop("format", None) != FORMAT:
            raise InputError(f"{where}: not a {FORMAT} file", "give a file of --json")
        version = body.pop("version", None)
        _require_known(version, where)
        try:
            tree = _tree(_of_version_1(body) if version == 1 else body)
            misplaced = misfit(tree, cls)
        except KeyError as error:
            problem = f"{where}: damaged: {error} is missing"
            raise InputError(problem, "write the report again") from error
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            problem = f"{where}: damaged: an unknown field, or a value of another kind"
            raise InputError(problem, "write the report again") from error
        if misplaced is not None:
            problem = f"{where}: damaged: {misplaced}: a value of another kind"
            raise InputError(problem, "write the report again")
        return tree


def _require_known(version: Any, where: str) -> None:
    """InputError for a version that cannot be read: by name, with what to do about it."""
    if type(version) is not int:
        raise InputError(f"{where}: damaged: its version is no number", "write the report again")
    if not OLDEST <= version <= VERSION:
        newer = "update parity, or render it with the one that wrote it"
        raise InputError(
            f"{where}: version {version} of {FORMAT}, this parity reads {OLDEST} to {VERSION}",
            newer if version > VERSION else "make the run again",
        )


def _of_version_1(body: dict[str, Any]) -> dict[str, Any]:
    """What version 1 did not ask for, as a tree holds what nobody asked for."""
    nothing: dict[str, Any] = {"births": None, "stability": None, "margins": [], "isolation": None}
    if isinstance(body.get("decode"), dict):
        body["decode"] = _of_version_1(body["decode"])
    return {**nothing, **body}


def _plain(tree: Tree) -> dict[str, Any]:
    body = asdict(tree)
    body["keys"] = [list(asdict(row).values()) for row in tree.keys]
    if tree.decode is not None:
        body["decode"] = _plain(tree.decode)
    if tree.stability is not None and tree.stability.tree is not None:
        body["stability"]["tree"] = _plain(tree.stability.tree)
    return body


def _tree(body: dict[str, Any]) -> Tree:
    elements, control, search = (body.pop(name) for name in ("elements", "control", "search"))
    decode, births, isolation = (body.pop(name) for name in ("decode", "births", "isolation"))
    stability = body.pop("stability")
    return Tree(
        verdict=Verdict(body.pop("verdict")),
        counts=Counts(**body.pop("counts")),
        level=Level(body.pop("level")),
        level_asked=Level(body.pop("level_asked")),
        keys=[_row(*row) for row in body.pop("keys")],
        inputs=[_row(**row) for row in body.pop("inputs")],
        elements=None if elements is None else _elements(elements),
        states=[_state_diff(state) for state in body.pop("states")],
        decode=None if decode is None else _tree(decode),
        births=None if births is None else _births(births),
        stability=None if stability is None else _stability(stability),
        margins=[Margin(**margin) for margin in body.pop("margins")],
        isolation=None if isolation is None else _isolation(isolation),
        profile=Profile.from_plain(body.pop("profile", None)),
        orders=orders_of_plain(body.pop("orders", ())),
        control=None if control is None else Control(**control),
        search=None if search is None else Search(**search),
        greedy=[(pos, ref, dut) for pos, ref, dut in body.pop("greedy")],
        **body,
    )


def _row(*values: Any, **named: Any) -> KeyRow:
    row = KeyRow(*values, **named)
    if row.state not in _KEY_STATES:
        raise ValueError(f"unknown state {row.state!r}")
    return row


def _elements(body: dict[str, Any]) -> Elements:
    rows = [ElementRow(**{**row, "index": tuple(row["index"])}) for row in body.pop("rows")]
    names = ("histogram", "groups", "signed", "blocks", "places")
    pairs: dict[str, Any] = {
        name: [tuple(pair) for pair in body.pop(name)] for name in names if name in body
    }
    return Elements(rows=rows, **pairs, **body)


def _state_diff(body: dict[str, Any]) -> StateDiff:
    parts = [StatePart(**part) for part in body.pop("parts")]
    return StateDiff(parts=parts, **body)


def _births(body: dict[str, Any]) -> Births:
    found = [_birth(birth) for birth in body.pop("found")]
    kernels = {name: (ref, dut) for name, (ref, dut) in body.pop("kernels").items()}
    sources = {name: (ref, dut) for name, (ref, dut) in body.pop("sources", {}).items()}
    return Births(found=found, kernels=kernels, sources=sources, **body)


def _birth(body: dict[str, Any]) -> Birth:
    elements = body.pop("elements")
    return Birth(
        elements=None if elements is None else _elements(elements),
        functions=[FunctionDiff(**function) for function in body.pop("functions")],
        **body,
    )


def _stability(body: dict[str, Any]) -> Stability:
    tree = body.pop("tree")
    return Stability(tree=None if tree is None else _tree(tree), **body)


def _isolation(body: dict[str, Any]) -> Isolation:
    return Isolation(
        trials=[Trial(**trial) for trial in body.pop("trials")],
        ladder=[Trial(**trial) for trial in body.pop("ladder")],
        placements=[Placement(**placement) for placement in body.pop("placements")],
        transplants=[Transplant(**transplant) for transplant in body.pop("transplants")],
        **body,
    )
