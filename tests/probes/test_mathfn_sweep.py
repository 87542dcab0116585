"""The sweep over all floats and its book-keeping (B28), stopping and going on, and the samples."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parity.elementary.functions import open_implementation
from parity.elementary.mathfn import DOMAINS, Ask, StoppedError, Sweep
from parity.elementary.tally import EVERY_FLOAT
from parity.errors import InputError, ParityBug
from parity.progress import Progress
from parity.status import Verdict
from parity_probes import mathfn as probe
from parity_probes.mathfn import HostPairs, Mathfn
from parity_probes.mathfn_inputs import special_values, uniform
from tests.probes.mathfn_sides import PLANTED, Side, changed, identity, interrupting, three_inputs

EVERY_CLASS = [16_777_214, 2, 2, 16_777_214, 4_261_412_864]
SMALL = (0x7F7FF000, 0x7F801000)  # around infinity, 8,192 bit patterns


def run(ask: Ask, ref: Side, dut: Side) -> Sweep:
    return Mathfn().run(ask, ref, dut, Progress(quiet=True))


def small(**options: object) -> Ask:
    """A sweep over SMALL."""
    settings = {"exhaustive": True, "span": SMALL, "chunk": 1000, "positions": False}
    return Ask("expf", **{**settings, **options})  # type: ignore[arg-type]


def plain(found: Sweep) -> str:
    """The JSON without what a rerun may change."""
    found = replace(found, seconds=0.0)
    return found.to_json()


# --- every float ----------------------------------------------------------------------------------


def test_every_float_against_a_copy_that_differs_at_three(tmp_path: Path) -> None:
    """Stopped once and gone on with other chunks, which do not divide 2^32 either."""
    state = str(tmp_path / "state.json")
    ask = Ask(
        "expf", exhaustive=True, chunk=(1 << 22) + 12_345, state=state, positions=False, typed="X"
    )
    with pytest.raises(StoppedError) as stopped:
        run(ask, interrupting(200), three_inputs())
    done = 200 * ask.chunk
    assert stopped.value.message == (
        f"stopped: {done:,} of 4,294,967,296 inputs done, up to {done - 1:08x}; kept in {state}"
    )
    assert stopped.value.next_step == "go on: X"
    found = run(replace(ask, chunk=(1 << 23) - 1), identity(), three_inputs())
    assert (found.verdict, found.pairs, found.differ) == (Verdict.DIVERGED, EVERY_FLOAT, 3)
    assert [int(one.x_hex, 16) for one in found.examples["first"]] == list(PLANTED)
    assert found.input_classes == EVERY_CLASS
    assert [sum(row) for row in found.results] == EVERY_CLASS
    assert sum(one.count for one in found.bins) == EVERY_FLOAT
    assert {one.name: one.count for one in found.bins[1:]} == {"1": 1, "NaN payload": 2}
    assert sum(one.pairs for one in found.exponents) == EVERY_FLOAT


@pytest.mark.slow
@pytest.mark.parametrize("function", ["expf", "cosf", "sinf", "logf"])
def test_every_float_against_itself(function: str) -> None:
    ucrt = open_implementation("ucrt")
    ask = Ask(function, exhaustive=True, positions=False, chunk=3_000_001)
    found = Mathfn().run(ask, ucrt, ucrt, Progress(quiet=True))
    assert (found.verdict, found.pairs, found.differ) == (Verdict.SAME, EVERY_FLOAT, 0)
    assert found.input_classes == EVERY_CLASS
    assert found.remarks == []


def test_a_function_against_itself() -> None:
    ucrt = open_implementation("ucrt")
    found = Mathfn().run(small(), ucrt, ucrt, Progress(quiet=True))
    assert (found.verdict, found.pairs, found.differ) == (Verdict.SAME, 8_192, 0)
    assert found.input_classes == [4_095, 1, 0, 0, 4_096]
    assert [(one.name, one.count) for one in found.bins] == [("equal", 8_192)]


@pytest.mark.parametrize("chunk", [77, 4_096, 8_191, 8_192, 100_000, 0])
def test_no_chunk_changes_the_result(chunk: int) -> None:
    flipped = changed("flipped", lambda bits: bits ^ np.uint32(1))
    assert plain(run(small(chunk=chunk), identity(), flipped)) == plain(
        run(small(), identity(), flipped)
    )


def test_red_a_chunk_that_loses_its_last_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = HostPairs.add_range
    monkeypatch.setattr(
        HostPairs, "add_range", lambda self, start, count: whole(self, start, count - 1)
    )
    with pytest.raises(ParityBug, match="add up to 8,183, not to 8,192 pairs"):
        run(small(), identity(), identity())


def test_red_results_of_another_shape() -> None:
    with pytest.raises(ParityBug, match=r"short: expf of float32\[1000\] is float32\[999\]"):
        run(small(), identity(), changed("short", lambda bits: bits[1:]))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_says_how_far_how_fast_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    times = itertools.count()
    monkeypatch.setattr(probe.time, "monotonic", lambda: next(times) / 1000)
    stream = Terminal()
    clock = itertools.count()
    with Progress(stream, clock=lambda: float(next(clock))) as progress:
        Mathfn().run(small(), identity(), identity(), progress)
    drawn = stream.getvalue().split("\r")
    assert "expf  1 M/s  3,000 of 8,192 inputs   about 5 s left" in drawn


# --- stopping and going on ------------------------------------------------------------------------


def test_stopped_and_gone_on_is_the_same_to_the_byte(tmp_path: Path) -> None:
    state = str(tmp_path / "state.json")
    flipped = changed("flipped", lambda bits: bits ^ (bits & np.uint32(3)))
    whole = run(small(), identity(), flipped)
    with pytest.raises(StoppedError, match="3,000 of 8,192 inputs done"):
        run(small(state=state), interrupting(3), flipped)
    found = run(small(state=state, chunk=999), identity(), flipped)
    assert plain(found) == plain(whole)
    assert found.differ == 8_192 * 3 // 4


def test_stopped_twice_before_anything_was_done(tmp_path: Path) -> None:
    state = str(tmp_path / "state.json")
    with pytest.raises(StoppedError, match="1,000 of 8,192 inputs done"):
        run(small(state=state), interrupting(1), identity())
    with pytest.raises(StoppedError, match="2,000 of 8,192 inputs done"):
        run(small(state=state), interrupting(1), identity())
    assert json.loads(Path(state).read_text())["next"] == SMALL[0] + 2_000


def test_stopped_without_a_state_keeps_nothing_and_says_so() -> None:
    with pytest.raises(StoppedError) as stopped:
        run(small(typed="parity mathfn expf"), interrupting(2), identity())
    assert stopped.value.message.endswith("nothing is kept")
    assert stopped.value.next_step == "parity mathfn expf --state FILE goes on next time"
    assert stopped.value.exit_status == 2


def test_a_second_ctrl_c_ends_at_once() -> None:
    impatient = interrupting(2)
    first = impatient._over_bits

    def twice(bits: np.ndarray) -> np.ndarray:
        first(bits)
        return first(bits)

    impatient._over_bits = twice
    with pytest.raises(KeyboardInterrupt):
        run(small(), impatient, identity())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def stopped_state(tmp_path: Path) -> Path:
    """A state of half a sweep of identity against identity."""
    state = tmp_path / "state.json"
    with pytest.raises(StoppedError):
        run(small(state=str(state)), interrupting(4), identity())
    return state


@pytest.mark.parametrize(
    ("ask", "ref", "dut", "said"),
    [
        ({"function": "cosf"}, "1", "1", "function expf there, cosf here"),
        ({"span": (0, 8_192)}, "1", "1", "inputs 7f7ff000 to 7f800fff there, 00000000 to"),
        ({}, "2", "1", "ref library test 1 there, test 2 here"),
        ({}, "1", "2", "dut library test 1 there, test 2 here"),
    ],
    ids=["function", "inputs", "ref", "dut"],
)
def test_red_a_state_of_another_sweep(
    tmp_path: Path, ask: dict[str, object], ref: str, dut: str, said: str
) -> None:
    state = stopped_state(tmp_path)
    before = state.read_bytes()
    with pytest.raises(InputError, match=re.escape(f"is of another sweep: {said}")):
        run(replace(small(state=str(state)), **ask), identity(ref), identity(dut))  # type: ignore[arg-type]
    assert state.read_bytes() == before


def test_red_a_state_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = stopped_state(tmp_path)
    monkeypatch.setattr(probe, "__version__", "9.9")
    with pytest.raises(InputError, match=r"another sweep: parity .* there, 9\.9 here"):
        run(small(state=str(state)), identity(), identity())


DAMAGE = {
    "cut": (lambda text: text[: len(text) // 2], "is damaged: JSONDecodeError"),
    "no JSON object": (lambda text: "[]", "is damaged: TypeError"),
    "another file": (lambda text: '{"format": "x", "version": 1}', "is not of parity-mathfn-state"),
    "a later version": (
        lambda text: text.replace('"version": 1', '"version": 2'),
        "is not of parity-mathfn-state 1",
    ),
    "a shorter tally": (
        lambda text: text.replace('"tally": [4000, ', '"tally": ['),
        "holds a tally of another length",
    ),
    "one pair more": (
        lambda text: text.replace(f'"next": {SMALL[0] + 4000}', f'"next": {SMALL[0] + 4001}'),
        "is damaged: 4,000 pairs counted, 4,001 inputs done",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_red_a_damaged_state(tmp_path: Path, name: str) -> None:
    damage, said = DAMAGE[name]
    state = stopped_state(tmp_path)
    text = damage(state.read_text())
    assert text != state.read_text()
    state.write_text(text)
    with pytest.raises(InputError, match=said) as refused:
        run(small(state=str(state)), identity(), identity())
    assert refused.value.next_step == "give another file, or delete this one"


def test_the_state_appears_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = stopped_state(tmp_path)
    before = state.read_bytes()

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        run(small(state=str(state)), interrupting(1), identity())
    assert state.read_bytes() == before
    assert list(tmp_path.iterdir()) == [state]


def test_the_state_is_written_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed without a chance to save, the last write counts."""
    state = tmp_path / "state.json"
    monkeypatch.setattr(probe, "SAVE_EVERY", 0.0)

    def killed(bits: np.ndarray) -> np.ndarray:
        if bits[0] == SMALL[0] + 5_000:
            raise MemoryError
        return bits

    with pytest.raises(MemoryError):
        run(small(state=str(state)), Side("identity", killed), identity())
    assert json.loads(state.read_text())["next"] == SMALL[0] + 5_000
    found = run(small(state=str(state)), identity(), identity())
    assert (found.pairs, found.differ) == (8_192, 0)


# --- samples --------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", DOMAINS)
def test_samples_are_seeded_and_inside_the_domain(function: str) -> None:
    low, high = DOMAINS[function]
    bits = uniform(10_000, (low, high), 3)
    x = bits.view(np.float32)
    assert low <= x.min() < low + 0.01 * (high - low)
    assert high - 0.01 * (high - low) < x.max() <= high
    assert (bits == uniform(10_000, (low, high), 3)).all()
    assert (bits != uniform(10_000, (low, high), 4)).mean() > 0.99


def test_samples_are_drawn_as_kestrel_draws_them() -> None:
    """As numbers: half of [-100, 0] lies below -50, whatever the floats there are."""
    x = uniform(400_002, (-100.0, 0.0), 7).view(np.float32)
    assert abs((x < -50).mean() - 0.5) < 0.005


def test_special_values_hold_the_named_ones() -> None:
    bits = set(special_values((-3.0, 5.0)).tolist())
    assert bits >= {*PLANTED, 0x80000000, 0x7F800000, 0xFF800000, 0x7F800001, 0x00000001}
    angles = np.array([1, 40, 2000, 48039, 131071, 500000, 16793388, 1e10, -3, 5], np.float32)
    assert bits >= set(angles.view(np.uint32).tolist())
    assert len(bits) == special_values((-3.0, 5.0)).size


def test_special_values_are_counted_apart() -> None:
    """A fault at -0 alone: no sample meets it, the verdict does."""

    def minus_zero(bits: np.ndarray) -> np.ndarray:
        bits[bits == np.uint32(0x80000000)] = 0
        return bits

    ask = Ask("expf", samples=1_000, domain=(1.0, 2.0), positions=False)
    found = run(ask, identity(), changed("no minus", minus_zero))
    assert (found.pairs, found.differ, found.verdict) == (1_000, 0, Verdict.DIVERGED)
    assert found.special is not None
    (one,) = found.special.examples
    assert (one.x_hex, one.kind, one.ulp) == ("80000000", "zero sign", None)
    assert found.remarks == []
    without = run(replace(ask, special=False), identity(), changed("no minus", minus_zero))
    assert (without.verdict, without.special) == (Verdict.SAME, None)
    assert without.remarks == [
        "no mismatch at any input: identity and no minus may be one implementation"
    ]


def test_nan_results_fail_and_are_kept_apart() -> None:
    """B02: a NaN for a number is no small distance, and no tolerance takes it."""

    def spoiled(bits: np.ndarray) -> np.ndarray:
        bits[3] = 0x7FC00000
        bits[5] ^= 1
        return bits

    ask = Ask("expf", samples=8, domain=(1.0, 2.0), positions=False, special=False)
    found = run(ask, identity(), changed("spoiled", spoiled))
    assert (found.verdict, found.differ, found.max_ulp) == (Verdict.DIVERGED, 2, 1)
    assert {one.name: one.count for one in found.bins} == {"equal": 6, "1": 1, "NaN in dut": 1}
    assert [one.ulp for one in found.examples["NaN in dut"]] == [None]
    assert found.results[4][0] == 1


def test_nan_against_nan_is_remarked_in_samples_and_in_special_values() -> None:
    def payload(bits: np.ndarray) -> np.ndarray:
        bits[bits == np.uint32(0x7FC00001)] = 0x7FC00002
        bits[bits == np.uint32(0x7FFFFFFF)] = 0x7FFFFFFE
        return bits

    ask = Ask("expf", samples=50, domain=(1.0, 2.0), positions=False)
    two = run(ask, identity(), changed("payload", payload))
    assert two.remarks == [
        "2 of the special values that differ are NaN against NaN with other bits: bits decide"
    ]
    one = Ask("expf", exhaustive=True, span=(0x7FC00000, 0x7FC00100), positions=False)
    assert run(one, identity(), changed("payload", payload)).remarks == [
        "1 of the differences is NaN against NaN with other bits: bits decide"
    ]


def test_a_long_sweep_says_once_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stderr is no terminal there is no line of progress."""
    times = itertools.count()
    monkeypatch.setattr(probe.time, "monotonic", lambda: float(next(times)))
    for seconds, wanted in ((1, 1), (10_000, 0)):
        monkeypatch.setattr(probe, "LONG", seconds)
        stream = io.StringIO()
        Mathfn().run(small(), identity(), identity(), Progress(stream))
        assert stream.getvalue().count("\n") == wanted
    stream = io.StringIO()
    monkeypatch.setattr(probe, "LONG", 1)
    Mathfn().run(small(), identity(), identity(), Progress(stream))
    assert re.fullmatch(r"expf: 8,192 inputs, about \d+ s\n", stream.getvalue())


def test_results_beyond_one_are_remarked() -> None:
    """B27: a cosine of 1 + 1 ULP."""
    one = np.uint32(0x3F800000)
    ref = Side("ones", lambda bits: np.full_like(bits, one))
    dut = Side("above", lambda bits: np.where(bits & 1 == 0, one + np.uint32(1), one))
    ask = Ask("cosf", samples=1_000, domain=(1.0, 2.0), positions=False, special=False)
    found = run(ask, ref, dut)
    assert found.outside == (0, found.differ)
    assert 400 < found.differ < 600
    first = found.examples["dut beyond 1"][0]
    assert found.remarks == [
        f"{found.differ:,} results of dut above are beyond 1 in size, first at {first.x_hex}: "
        "+1.00000012e+00"
    ]
    assert run(replace(ask, function="expf"), ref, dut).outside is None


def test_a_cosine_with_its_fma_operands_in_another_order_is_found() -> None:
    wrong = open_implementation("tests.red.function_faults:cosf_operands_231")
    ask = Ask("cosf", samples=20_000, domain=(-10_000.0, 10_000.0), positions=False, special=False)
    found = Mathfn().run(ask, open_implementation("ucrt"), wrong, Progress(quiet=True))
    assert found.verdict is Verdict.DIVERGED
    assert found.differ > 0.9 * found.pairs


def test_a_result_that_depends_on_its_place_is_unstable() -> None:
    wrong = open_implementation("tests.red.function_faults:by_place")
    ask = Ask("expf", samples=160, domain=(-100.0, 0.0))
    found = Mathfn().run(ask, open_implementation("ucrt"), wrong, Progress(quiet=True))
    assert found.verdict is Verdict.UNSTABLE
    assert found.placed is not None
    assert (found.placed.inputs, found.placed.side) == (10_001, "dut")
    assert re.fullmatch(
        r"[0-9a-f]{8}: [0-9a-f]{8} in the array, [0-9a-f]{8} alone", found.placed.text
    )


def test_results_go_through_json_and_back() -> None:
    from parity.elementary.mathfn import read_result

    flipped = changed("flipped", lambda bits: bits ^ (bits & np.uint32(1)))
    found = run(Ask("cosf", samples=500, positions=False), identity(), flipped)
    assert read_result(found.to_json(), "x") == found
