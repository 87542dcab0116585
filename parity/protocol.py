"""The engine Protocol: the truth about what a plug-in engine must and may offer.

Required: the members of ``Engine``. Optional, named in ``capabilities`` and never fatal when
absent: ``state`` (``read_state``, ``write_state``), ``capture`` (raw tensors in a step),
``inject`` (move one element, or change a value, before it is hashed and used), ``replay`` (go on
with given values in place of what an op made), ``trace`` (what ran for a key), ``elementary`` (the
engine's own expf and so on), ``borrow`` (compute a step with given ones), ``rows``
(``step_rows``), ``batch`` (``step_batch``), ``rollback`` (``mark``, ``rollback``), ``counters`` (op
calls or launches by name).

``protocol``, an optional member, is the version of this Protocol that an engine was written for; an
engine without it was written for version 1. What version 2 added (``Plan.replace``, ``trace``,
``borrow``, ``Injection.change``, ``Step.calls``) belongs to capabilities, which an older engine
lacks. One of a newer version than PROTOCOL is refused. ``room``, an optional method, tells where
the engine holds a model and what is free there (``parity.model.memory.Room``): two sides that do
not fit together are then refused before anything is read.

``order``, an optional member of the class, says in which order an engine adds: CONTRACT (docs/
contract.md; the default) or LIBRARY, another one of its own, whose bits nobody else has.

``sums_of(field, layer, rows)``, an optional method, tells which sums make a field in a forward of
so many rows (``parity.order.sums.SumAsk``): where a difference begins, reports say how both sides
add.

``embedded(token)``, an optional method, gives what the loaded model embeds a token as, [hidden] in
the dtype that the first layer reads. No key shows it: without this method a difference at the start
of layer 0 is told as the embedding's or the op's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from parity.dump import Entry
from parity.fnv import BASES
from parity.keys import Key

if TYPE_CHECKING:
    import numpy as np

    from parity.dump import TensorType
    from parity.model.model import Model
    from parity.progress import Notes

PROTOCOL = 2
CONTRACT, LIBRARY = "contract", "library"
REQUIRED = (
    *("name", "version", "tiers", "variants", "capabilities"),
    *("describe", "load", "weights", "reset", "prefill", "step"),
)
CAPABILITIES = {
    "state": ("read_state", "write_state"),
    "capture": (),
    "inject": (),
    "replay": (),
    "trace": (),
    "elementary": ("elementary",),
    "borrow": (),
    "rows": ("step_rows",),
    "batch": ("step_batch",),
    "rollback": ("mark", "rollback"),
    "counters": ("counters",),
}


@dataclass(frozen=True)
class EngineSettings:
    """What the command line chose for one side. ``options`` are the engine's own (``@name=value``
    in a spec); ``notes`` takes lines such as "building ..."."""

    tier: str = "exact"
    variants: frozenset[str] = frozenset()
    options: Mapping[str, str] = field(default_factory=dict)
    notes: Notes | None = None


# Given the value that an op made, a copy: the value to stand in its place (same dtype and shape).
Change = Callable[["np.ndarray"], "np.ndarray"]


@dataclass(frozen=True)
class Injection:
    """Move element ``index`` (flat) of the value behind ``key`` by 1 ULP (an integer by 1 step)
    before it is hashed and used. ``change``: put what it gives there instead."""

    key: Key
    index: int = 0
    change: Change | None = None


# Asked once for every value a step makes, dumped or not, in the order the engine makes them: the
# key, and a function that gives a copy of the value. It answers with what the rest of the step must
# read in its place (same dtype and shape), or None for the value itself.
Replace = Callable[[Key, "Callable[[], np.ndarray]"], "np.ndarray | None"]

# The elementary functions that a variant or another library may swap (contract 1.1, 4). rsqrt is
# the inverse root of the norms, 1/sqrt(x) in the exact tier.
ELEMENTARY = ("rsqrt", "expf", "cosf", "sinf", "logf")
# A name of ELEMENTARY and its arguments, float32[n]: the values, float32[n].
Elementary = Callable[[str, "np.ndarray"], "np.ndarray"]


@dataclass(frozen=True)
class Plan:
    """What the steps of a run must report. A tap never changes a bit of what is computed.

    ``fields``: fields to hash. ``places``: only these (position, layer) pairs, None for all;
    layer None stands for the fields after the last layer. ``tensors``: keys whose raw values are
    kept too. ``basis``: FNV-1a-64 offset basis. ``replace``: see ``Replace``; what is reported is
    what the op made, what is read afterwards is the replacement (a stored row or state part too).
    ``trace``: keys for which the step tells what ran. ``borrow``: elementary functions to compute
    with in place of the engine's own, wherever an op calls one of ELEMENTARY.
    """

    fields: Collection[str]
    places: frozenset[tuple[int, int | None]] | None = None
    tensors: frozenset[Key] = frozenset()
    basis: int = BASES["fnv1a64"]
    inject: Injection | None = None
    replace: Replace | None = None
    trace: frozenset[Key] = frozenset()
    borrow: Elementary | None = None

    def wants(self, key: Key) -> bool:
        """Whether the value behind ``key`` is to be hashed."""
        if key.field not in self.fields:
            return False
        return self.places is None or (key.pos, key.layer) in self.places

    def injection(self, key: Key) -> int | None:
        """Flat index of the element to move in the value behind ``key``, or None."""
        if self.inject is None or self.inject.key != key or self.inject.change is not None:
            return None
        return self.inject.index

    def change(self, key: Key) -> Change | None:
        """What to make of the value behind ``key`` before it is hashed and used, or None."""
        return None if self.inject is None or self.inject.key != key else self.inject.change


@dataclass(frozen=True)
class Call:
    """One op or kernel that ran for a value. ``elementary``: the elementary functions it called,
    each with its arguments, float32[n] in the op's own order, where the engine can tell;
    ``source``: the file that holds its text, from the package on."""

    op: str
    elementary: tuple[tuple[str, np.ndarray], ...] = ()
    source: str = ""


@dataclass(frozen=True)
class Step:
    """What one step gave: logits float32[vocab] (a copy), entries in dataflow order, tensors, and
    by traced key the calls since the value before it (values made by one op share its calls).
    ``entries``: a list, or a ``parity.dumps.table.Table``, which makes each when it is asked for;
    later steps do not change them."""

    logits: np.ndarray
    entries: Sequence[Entry] = field(default_factory=list)
    tensors: dict[Key, np.ndarray] = field(default_factory=dict)
    calls: dict[Key, tuple[Call, ...]] = field(default_factory=dict)


class Engine(Protocol):
    """One side of a comparison. Constructed with ``EngineSettings``; one model at a time."""

    name: ClassVar[str]
    version: ClassVar[str]
    tiers: ClassVar[tuple[str, ...]]
    variants: ClassVar[tuple[str, ...]]
    capabilities: ClassVar[frozenset[str]]

    def describe(self) -> Mapping[str, str]:
        """Header values: device, driver, compiler, options, kernels, emulated ("yes" or "no").
        Where the engine can tell, also compiled, mask and packages (docs/provenance.md)."""
        ...

    def load(self, model: Model, positions: int) -> None:
        """Load the weights and make a KV cache of ``positions`` rows; implies ``reset``."""
        ...

    def weights(self) -> Mapping[str, tuple[TensorType, int]]:
        """Type and FNV-1a-64 of every tensor, from the bytes this engine holds."""
        ...

    def reset(self) -> None:
        """Forget the sequence: the next token stands at position 0."""
        ...

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        """Feed the prompt, with the bits of single steps; one Step per token when ``plan`` is
        given, else the last one only."""
        ...

    def step(self, token: int, plan: Plan | None = None) -> Step:
        """Feed one token at the next position."""
        ...


class StateEngine(Engine, Protocol):
    """An engine with the capability ``state``."""

    def read_state(self) -> dict[str, np.ndarray]:
        """Every state part by name: ``lengths`` int32[1], then per layer ``l<L>_k`` and so on,
        rows 0 .. length-1 only (contract 6). Copies."""
        ...

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over a state that ``read_state`` gave."""
        ...


class ElementaryEngine(Engine, Protocol):
    """An engine with the capability ``elementary``."""

    def elementary(self, function: str, x: np.ndarray) -> np.ndarray:
        """A function of ELEMENTARY as the engine's ops compute it, under its tier and variants:
        float32[n] to a new float32[n], the value of an argument wherever it stands. Needs no
        model. InputError for another name."""
        ...


class RowsEngine(StateEngine, Protocol):
    """An engine with the capabilities ``rows``, ``rollback`` and ``counters``."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        """Feed M tokens in one forward, with the bits of M single steps: one Step per row, its
        keys in dataflow order under its own position (contract 6)."""
        ...

    def mark(self) -> None:
        """Remember the state; a second mark replaces the first; reset and load drop it."""
        ...

    def rollback(self) -> None:
        """Go back to the mark, once; without one InputError, and nothing changes."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Op calls or kernel launches so far, by name."""
        ...


class BatchEngine(Engine, Protocol):
    """An engine with the capability ``batch``."""

    def step_batch(
        self, sequences: Sequence[Sequence[int]], plan: Plan | None = None, decode: int = 0
    ) -> list[list[Step]]:
        """Feed B unrelated sequences, all from position 0, in one forward; the last ``decode``
        tokens of each in one more forward a token. For each sequence one Step per own token, its
        keys under the sequence's own positions. Steps of positions that ``plan.places`` does not
        name carry no entries, and logits float32[0]. ``plan.inject`` applies to every sequence that
        has its key. Afterwards the engine is reset. InputError where a sequence has no more than
        ``decode`` tokens.
        """
        ...
