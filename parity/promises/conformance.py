"""The tools of ``parity.testing``: what a check works on, and comparing what engines gave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.dump import Entry
from parity.errors import ParityError
from parity.families import layer_fields
from parity.fnv import BASES, fnv1a64_array
from parity.keys import FINAL_FIELDS, Key, KeyOrder
from parity.model.model import Model
from parity.promises.candidate import Candidate
from parity.protocol import Engine, Plan, Step
from parity.runs.run import Run

POSITIONS = 8  # rows of the KV cache in every check but those that fill it
STATE = "state"  # the capability without which states are not compared
WEIGHTS = "weights"  # no capability of an engine, but one of a program

KEPT, NOT_OFFERED, BROKEN, NOT_CHECKED = "kept", "not offered", "BROKEN", "not checked"

State = Mapping[str, np.ndarray]


class ConformanceError(ParityError):
    """An engine breaks a promise.

    Cause: the engine; ``promise`` is the name of the check. Way out: read the docstring of
    ``parity.testing.<promise>`` and mend the engine.
    """

    def __init__(self, promise: str, engine: str, message: str) -> None:
        super().__init__(
            f"{engine} breaks the promise {promise}: {message}",
            f"the promise is the docstring of parity.testing.{promise}",
        )
        self.promise = promise
        self.said = message


@dataclass(frozen=True)
class Outcome:
    """What became of one promise. ``text``: the capability that is not offered, or what broke."""

    promise: str
    state: str
    text: str = ""
    error: ConformanceError | None = None

    def __str__(self) -> str:
        if self.state == KEPT:
            return self.promise
        text = (
            f" ({self.text})" if self.state == NOT_OFFERED else f": {self.text}" * bool(self.text)
        )
        return f"{self.promise}: {self.state}{text}"


@dataclass(frozen=True)
class Bench:
    """What one check works on. ``tokens``: six prompt tokens of the model."""

    promise: str
    candidate: Candidate
    model: Model
    tokens: tuple[int, ...]

    @property
    def name(self) -> str:
        """What the engine calls itself, or the name of its class."""
        members = self.candidate.members
        return str(getattr(members, "name", "") or class_name(members))

    @property
    def own_fields(self) -> bool:
        """Whether the engine reports fields of its own, in place of the model's."""
        return self.candidate.program is not None

    @property
    def vocab(self) -> int:
        """How many logits a step has."""
        told = self.candidate.program
        return (told.vocab if told else None) or self.model.config.vocab

    @property
    def fields(self) -> tuple[str, ...]:
        """Every field of the model's family, the optional ones too, in dataflow order."""
        return Run(self.model, self.tokens, extra_fields=("ffn", "s")).fields

    @property
    def plan(self) -> Plan:
        """Report every field of every step."""
        return Plan(self.fields)

    def expected_keys(self, pos: int) -> list[Key]:
        """Every key of one step, in dataflow order."""
        config, fields = self.model.config, self.fields
        layers = range(config.layers)
        keys = [Key(pos, at, name) for at in layers for name in layer_fields(config, at, fields)]
        return sorted([*keys, *(Key(pos, None, name) for name in FINAL_FIELDS)], key=KeyOrder())

    def offers(self, capability: str) -> bool:
        """Whether the engine has an optional capability; every engine but some programs tells its
        weights."""
        if capability == WEIGHTS:
            return self.candidate.tells_weights
        return capability in self.candidate.members.capabilities

    def open(self, positions: int = POSITIONS) -> Engine:
        """A fresh engine with the model loaded."""
        engine = self.candidate.make(self.candidate.settings)
        engine.load(self.model, positions)
        return engine

    def require(self, kept: bool, message: str) -> None:
        """Raise ConformanceError unless the promise is kept."""
        if not kept:
            raise ConformanceError(self.promise, self.name, message)

    def require_none(self, where: str, found: str) -> None:
        """Raise ConformanceError when ``found`` says that something was found."""
        self.require(not found, f"{where}: {found}")

    def require_same(self, where: str, ref: Sequence[Step], dut: Sequence[Step]) -> None:
        """Raise ConformanceError unless both runs gave the same logits and entries."""
        self.require(len(ref) == len(dut), f"{where}: {len(dut)} steps instead of {len(ref)}")
        for number, (one, other) in enumerate(zip(ref, dut, strict=True)):
            at = f"{where}, step {number}"
            self.require(bits(one.logits) == bits(other.logits), f"{at}: other logits")
            self.require_none(at, first_difference(one.entries, other.entries))

    def require_same_state(self, where: str, ref: Engine, dut: Engine) -> None:
        """Raise ConformanceError where both engines can give their states and they differ."""
        if self.offers(STATE):
            self.require_none(where, state_difference(read_state(ref), read_state(dut)))

    def require_digest_of_logits(self, step: Step, basis: int = BASES["fnv1a64"]) -> None:
        """Raise ConformanceError unless the last entry is the digest of the step's logits."""
        told = step.entries[-1]
        same = told.digest == fnv1a64_array(step.logits, basis)
        self.require(same, f"{told.key} is not the digest of the logits it gave")

    def require_refused(self, what: str, call: Callable[[], object]) -> None:
        """Raise ConformanceError unless ``call`` raises a ParityError."""
        try:
            call()
        except ParityError:
            return
        except Exception as error:
            said = f"{what} raised {type(error).__name__}, not a ParityError"
            raise ConformanceError(self.promise, self.name, said) from error
        self.require(False, f"{what} was not refused")


def class_name(members: object) -> str:
    """The name of a class, or of the class that an engine is of."""
    return (members if isinstance(members, type) else type(members)).__name__


def single_steps(engine: Engine, tokens: Iterable[int], plan: Plan | None = None) -> list[Step]:
    """Feed token by token. The logits are copied at once: an engine that reuses them is found by
    the promise about that, and by no other."""
    steps = []
    for token in tokens:
        step = engine.step(token, plan)
        steps.append(replace(step, logits=np.array(step.logits)))
    return steps


def bits(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    """dtype, shape and bytes: what makes two arrays the same."""
    return str(array.dtype), array.shape, array.tobytes()


def first_difference(ref: Sequence[Entry], dut: Sequence[Entry]) -> str:
    """The first entry that is not the same, as ``key was ..., is ...``; empty when all are."""
    for one, other in zip(ref, dut, strict=False):
        if one.key != other.key:
            return f"{other.key} stands where {one.key} was"
        if one != other:
            return f"{one.key} was {one.value_text()}, is {other.value_text()}"
    return "" if len(ref) == len(dut) else f"{len(dut)} entries instead of {len(ref)}"


def read_state(engine: Engine) -> dict[str, np.ndarray]:
    """The state of an engine with that capability."""
    return engine.read_state()  # type: ignore[attr-defined, no-any-return]


def write_state(engine: Engine, state: State) -> None:
    """Write the state of an engine with that capability."""
    engine.write_state(state)  # type: ignore[attr-defined]


def copies(state: State) -> dict[str, np.ndarray]:
    """A deep copy."""
    return {name: np.array(array) for name, array in state.items()}


def spoil(state: State) -> None:
    """Overwrite what can be written: whoever shares this memory shows it."""
    for array in (part for part in state.values() if part.flags.writeable):
        array[...] = np.frombuffer(b"\x55" * array.nbytes, array.dtype).reshape(array.shape)


def state_difference(ref: State, dut: State) -> str:
    """The first state part that is not the same; empty when all are."""
    if list(ref) != list(dut):
        return f"state parts {list(dut)[:5]} instead of {list(ref)[:5]}"
    differing = [name for name in ref if bits(ref[name]) != bits(dut[name])]
    return f"state part {differing[0]} differs" if differing else ""
