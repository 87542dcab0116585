"""Two engines in step: at every value both have made it, and one of the two goes on with the
other's.

The ref's step runs in the caller's thread, the dut's in a thread of its own that moves only while
the caller waits for it: never do both compute. They meet at each value by its key, in the order in
which both make them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from parity.errors import NotRunError, ParityBug
from parity.keys import Key
from parity.protocol import Plan, Replace, Step
from parity.runs.run import Side

Read = Callable[[], np.ndarray]


class Value(NamedTuple):
    """A value that a step has made and offers: its key, and how to get a copy."""

    key: Key
    read: Read


class _Stopped(BaseException):
    """Ends a step whose caller has no more use for it; no engine catches it by mistake."""


class Partner:
    """A step in a thread of its own, driven value by value like a generator.

    ``run`` is given the ``Replace`` to hand to the engine. Use as a context manager: at the end the
    thread is gone, whatever happened.
    """

    def __init__(self, run: Callable[[Replace], Step]) -> None:
        self.step: Step | None = None
        self._run = run
        self._resume, self._met = threading.Semaphore(0), threading.Semaphore(0)
        self._offered: Value | None = None
        self._answer: np.ndarray | None = None
        self._raised: BaseException | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="parity-dut", daemon=True)

    def __enter__(self) -> Partner:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # From here on the step waits for nobody: its next value ends it, wherever it stands.
        self._stopping = True
        self._resume.release()
        self._thread.join()

    def advance(self, answer: np.ndarray | None = None) -> Value | None:
        """Go on with ``answer`` (see ``Replace``) to the next value, or to the end: None, and
        ``step`` is there. Raises what the step raises."""
        self._answer = answer
        self._resume.release()
        self._met.acquire()
        if self._raised is not None:
            raise self._raised
        return self._offered

    def _work(self) -> None:
        self._resume.acquire()
        try:
            if not self._stopping:
                self.step = self._run(self._replace)
        except _Stopped:
            pass
        except BaseException as error:  # whatever it is, the caller must see it
            self._raised = error
        self._offered = None
        self._met.release()

    def _replace(self, key: Key, read: Read) -> np.ndarray | None:
        if self._stopping:
            raise _Stopped
        self._offered = Value(key, read)
        self._met.release()
        self._resume.acquire()
        if self._stopping:
            raise _Stopped
        return self._answer


@dataclass
class Meeting:
    """Both steps at one value after the other. ``placed``: keys whose value is the dut's.

    ``names``: how the sides are called in errors.
    """

    partner: Partner
    placed: Callable[[Key], bool]
    names: tuple[str, str]
    _answer: np.ndarray | None = None  # what the dut goes on with when it is resumed

    def __call__(self, key: Key, read: Read) -> np.ndarray | None:
        """The ref's ``Replace``: fetch the dut's value of the same key, and exchange."""
        met = self.partner.advance(self._answer)
        if met is None or met.key != key:
            raise self._parted(str(key), str(met.key) if met else "no further value")
        mine, theirs = read(), met.read()
        _check_alike(key, mine, theirs, self.names)
        if self.placed(key):
            self._answer = None
            return theirs
        self._answer = mine
        return None

    def finish(self) -> Step:
        """The dut's step, after the ref's has ended."""
        met = self.partner.advance(self._answer)
        if met is not None:
            raise self._parted("no further value", str(met.key))
        if self.partner.step is None:
            raise ParityBug("a step ended without a result")
        return self.partner.step

    def _parted(self, ref: str, dut: str) -> NotRunError:
        return NotRunError(
            f"{self.names[0]} makes {ref} where {self.names[1]} makes {dut}: "
            "the two cannot run in step",
            "both must offer the same values in one order: parity.testing.engine_conformance",
        )


def step_together(
    ref: Side, dut: Side, token: int, plans: tuple[Plan, Plan], placed: Callable[[Key], bool]
) -> tuple[Step, Step]:
    """One step of both sides on one token, each value the ref's but for the keys ``placed``.

    ``plans``: what each side reports; their ``replace`` is set here. Both must hold one state, and
    hold one afterwards. Raises NotRunError when they do not make the same values in one order.
    """

    def run(answer: Replace) -> Step:
        return dut.engine.step(token, replace(plans[1], replace=answer))

    with Partner(run) as partner:
        meeting = Meeting(partner, placed, (ref.spec, dut.spec))
        mine = ref.engine.step(token, replace(plans[0], replace=meeting))
        return mine, meeting.finish()


def _check_alike(key: Key, ref: np.ndarray, dut: np.ndarray, names: tuple[str, str]) -> None:
    if ref.dtype == dut.dtype and ref.shape == dut.shape:
        return
    kinds = [f"{array.dtype}{list(array.shape)}" for array in (ref, dut)]
    raise NotRunError(
        f"{key} is {kinds[0]} in {names[0]} and {kinds[1]} in {names[1]}: nothing to exchange",
        "both must give a field the type of contract 2",
    )
