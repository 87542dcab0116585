"""mathfn: two implementations of one elementary function give the same bits for every input.

Breaks it: another algorithm or rounding on one side, a special value treated in another way, a
library whose result depends on where an element sits. Does not show: which side is nearer to the
true value (compare both with ``correct``), or what a difference does to a model (``diff``).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from parity import __version__
from parity.builds.provenance import COMPILED, PACKAGES, packages_of
from parity.elementary.functions import Implementation, ResidentImplementation
from parity.elementary.mathfn import BOUNDED, Ask, Placed, StoppedError, Sweep, Table
from parity.elementary.positions import AGAIN, check_positions
from parity.elementary.tally import PairSource, Tally
from parity.errors import ParityBug
from parity.progress import Progress
from parity.status import Verdict
from parity_probes.mathfn_inputs import described, special_values, uniform
from parity_probes.mathfn_result import fill, remarks, special
from parity_probes.mathfn_state import SweepState, identity_of, read_state, write_state
from parity_probes.mathfn_tally import PairCounter

Bits = npt.NDArray[np.uint32]

SAVE_EVERY = 5.0  # seconds between two writes of the state file
PLACED = 10_001  # inputs of the check of positions
LONG = 20.0  # seconds from which on a sweep says how long it takes
TRIED = 2.0  # seconds after which its speed is known


class Mathfn:
    """Probe ``mathfn``."""

    name = "mathfn"
    claim = "two implementations of a function give the same bits for every input"

    def run(self, ask: Ask, ref: Implementation, dut: Implementation, progress: Progress) -> Sweep:
        """Compare both over the inputs of ``ask``. StoppedError when Ctrl-C ends it early."""
        began = time.monotonic()
        tally = Tally()
        source = pair_source(ask, ref, dut)
        if ask.exhaustive:
            _sweep(ask, source, (ref, dut), tally, progress)
        else:
            bits = uniform(ask.samples, ask.domain, ask.seed)
            HostPairs(ask, ref, dut).add_inputs(bits, tally)
        found = _result(ask, ref, dut, tally)
        found.where = source.where
        found.seconds = time.monotonic() - began
        return found

    def table(self, seed: int, reproduce: str, progress: Progress) -> Table:
        """Kestrel's table."""
        from parity_probes.mathfn_table import measure

        return measure(seed, reproduce, progress)


class HostPairs:
    """Pairs of results in host memory: evaluated chunk by chunk, counted by Numba."""

    where = "host"
    chunk = 1 << 22  # 48 MB of arguments and results; enough work for each wake of the threads

    def __init__(self, ask: Ask, ref: Implementation, dut: Implementation) -> None:
        self._ask, self._sides = ask, (ref, dut)
        self._counter = PairCounter(ask.function in BOUNDED)
        self._bits = np.empty(0, np.uint32)

    def add_range(self, start: int, count: int) -> None:
        """Count the inputs of ``count`` bit patterns from ``start`` on."""
        if self._bits.size < count:
            self._bits = np.empty(count, np.uint32)
            self._steps = np.arange(count, dtype=np.uint32)
        bits = np.add(self._steps[:count], np.uint32(start), out=self._bits[:count])
        self._counter.add(bits, *results(self._ask.function, self._sides, bits))

    def add_inputs(self, bits: Bits, total: Tally) -> None:
        """Count (n,) inputs in any order, and add them to ``total``."""
        self._counter.add(bits, *results(self._ask.function, self._sides, bits))
        self.move_to(total)
        total.add_inputs(bits)

    def move_to(self, total: Tally) -> None:
        """Add what was counted to ``total``, and start again from nothing."""
        self._counter.move_to(total)


def results(function: str, sides: tuple[Implementation, Implementation], bits: Bits) -> list[Bits]:
    """Both sides' results as bit patterns. ParityBug for one of another dtype or shape."""
    found = []
    for side in sides:
        result = side.evaluate(function, bits.view(np.float32))
        if result.dtype != np.float32 or result.shape != bits.shape:
            raise ParityBug(
                f"implementation {side.name}: {function} of float32{list(bits.shape)} "
                f"is {result.dtype}{list(result.shape)}"
            )
        found.append(np.ascontiguousarray(result).view(np.uint32))
    return found


def pair_source(ask: Ask, ref: Implementation, dut: Implementation) -> PairSource:
    """Where pairs are made and counted: on the device when both sides' results lie there."""
    if not isinstance(ref, ResidentImplementation) or not isinstance(dut, ResidentImplementation):
        return HostPairs(ask, ref, dut)
    if ask.exhaustive and dut.backend is ref.backend:
        return ref.pair_source(ask.function, dut, ask.function in BOUNDED)
    return HostPairs(ask, ref, dut)


def _sweep(
    ask: Ask,
    source: PairSource,
    sides: tuple[Implementation, Implementation],
    total: Tally,
    progress: Progress,
) -> None:
    """Count every input of ``ask.span`` into ``total``, from where the state file stands on."""
    start, stop = ask.span
    identity = _identity(ask, *sides)
    at = start
    if ask.state and (state := read_state(ask.state, identity, start)):
        at = state.next
        total.add([state.tally.words])
    began, first, saved = time.monotonic(), at, time.monotonic()
    told = False
    with _interrupt_held() as interrupted:
        while at < stop and not interrupted():
            count = min(ask.chunk or source.chunk, stop - at)
            source.add_range(at, count)
            at += count
            now = time.monotonic()
            rate = (at - first) / max(now - began, 1e-9)
            speed = f"{rate / 1e6:,.0f} M/s"
            progress.update(ask.function, speed, at - start, stop - start, "inputs")
            if not told and now - began > TRIED:
                told = True
                _say_how_long(ask, progress, stop - first, rate)
            if ask.state and now - saved > SAVE_EVERY:
                _save(ask, source, identity, at, total)
                saved = now
        source.move_to(total)
        if ask.state:
            _save(ask, source, identity, at, total)
    if at < stop:
        raise _stopped(ask, at)
    total.add_range(start, stop)


def _say_how_long(ask: Ask, progress: Progress, inputs: int, rate: float) -> None:
    """One line that stays: where stderr is no terminal, nothing else tells that a sweep goes on."""
    seconds = inputs / rate
    if seconds > LONG:
        progress.note(f"{ask.function}: {inputs:,} inputs, about {seconds:,.0f} s")


def _save(ask: Ask, source: PairSource, identity: dict[str, str], at: int, total: Tally) -> None:
    source.move_to(total)
    write_state(ask.state, SweepState(identity, at, total))


def _identity(ask: Ask, ref: Implementation, dut: Implementation) -> dict[str, str]:
    """What must be the same for a stopped sweep to go on."""
    start, stop = ask.span
    return identity_of(
        {
            "function": ask.function,
            "parity": __version__,
            "inputs": f"{start:08x} to {stop - 1:08x}",
            "ref": _known(ref),
            "dut": _known(dut),
        }
    )


def _known(side: Implementation) -> dict[str, str]:
    """What an implementation says before it has run as well as after."""
    return {name: text for name, text in about(side).items() if name != COMPILED}


def _stopped(ask: Ask, at: int) -> StoppedError:
    start, stop = ask.span
    done = f"{at - start:,} of {stop - start:,} inputs done, up to {at - 1:08x}"
    if at == start:
        done = "no input done"
    if not ask.state:
        return StoppedError(
            f"stopped: {done}; nothing is kept", f"{ask.typed} --state FILE goes on next time"
        )
    return StoppedError(f"stopped: {done}; kept in {ask.state}", f"go on: {ask.typed}")


@contextmanager
def _interrupt_held() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C back until a chunk is counted whole; a second one ends the process at once."""
    pressed = False

    def hold(_signal: int, _frame: Any) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread is sent signals
        return
    before = signal.signal(signal.SIGINT, hold)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


def about(side: Implementation) -> dict[str, str]:
    """The name, and what the implementation says of itself."""
    return {"name": side.name, PACKAGES: packages_of(side), **side.describe()}


def _result(ask: Ask, ref: Implementation, dut: Implementation, tally: Tally) -> Sweep:
    start, stop = ask.span
    found = Sweep(
        verdict=Verdict.SAME,
        function=ask.function,
        ref=about(ref),
        dut=about(dut),
        inputs=described(ask),
        pairs=stop - start if ask.exhaustive else ask.samples,
        reproduce=ask.reproduce,
    )
    fill(found, tally)
    if ask.special and not ask.exhaustive:
        bits = special_values(ask.domain)
        found.special = special(bits, *results(ask.function, (ref, dut), bits))
    if ask.positions:
        found.placed = placed(ask, (ref, dut))
    found.remarks = remarks(found)
    if found.placed and found.placed.side:
        found.verdict = Verdict.UNSTABLE
    elif found.differ or (found.special and found.special.differ):
        found.verdict = Verdict.DIVERGED
    return found


def placed(ask: Ask, sides: tuple[Implementation, Implementation]) -> Placed:
    """Whether either side's results depend on where in memory an input sits, or on nothing."""
    x = uniform(PLACED, ask.domain, ask.seed).view(np.float32)
    for side, implementation in zip(("ref", "dut"), sides, strict=True):
        violations = check_positions(implementation, ask.function, x)
        if violations:
            first = violations[0]
            repeats = first.layout != AGAIN
            return Placed(PLACED, side, str(first), len(violations), repeats)
    return Placed(PLACED)
