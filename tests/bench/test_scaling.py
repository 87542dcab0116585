"""Nothing grows by more than the model does: by counting what Python runs, not by time.

Counted are Python's operations at n, 2n and 4n; the growth is that of the second difference to the
first, which constants do not touch: 1 linear, 2 quadratic. What one operation does inside NumPy or
a compiled loop is not counted; where that was quadratic once, elements are counted instead.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest

from parity.baseline import runs
from parity.dump import Entry, TensorType
from parity.dumps.forms import Forms
from parity.explain.births import Flow
from parity.explain.drill import Start
from parity.fnv import fnv1a64, fnv1a64_prefixes
from parity.keys import Key
from parity.program.serving import _Requests
from parity.protocol import Plan, Step
from parity.runs.engine_diff import Ask, diff_engines
from parity_cpu.tap import Tap
from tests.bench import scaling
from tests.bench.scaling_cases import CASES, Case, doubled, loaded, run_of, sides_of

BY_LABEL = {case.label: case for case in CASES}
SMALL = {"keys": 200, "context": 16, "tokens": 4, "rows": 4, "layers": 2}
TOLERATED = 0.1  # of an exponent: tables that grow now and then, digits of numbers


@contextmanager
def tracing(trace: Any) -> Iterator[None]:
    """``trace`` in the place of the tracer there is, for a while."""
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def operations(call: Callable[[], object]) -> int:
    """How many operations of Python's a call runs."""
    count = 0

    def each(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "opcode"
        return each

    def entered(frame: FrameType, event: str, arg: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return each

    with tracing(entered):
        call()
    return count


def growth(counts: list[int]) -> float:
    """The exponent of counts at n, 2n and 4n without their constant part; 0 where none grows."""
    one, two = counts[1] - counts[0], counts[2] - counts[1]
    return math.log2(two / one) if one > 0 and two > 0 else 0.0


def counted(case: Case) -> float:
    """The growth of a case at small sizes, after a call that fills caches."""
    counts = []
    for size in doubled(SMALL[case.group]):
        call = case.make("cpu", size)
        call()
        counts.append(operations(call))
    return growth(counts)


def test_operations_are_counted() -> None:
    def quadratic(n: int) -> int:
        return sum(1 for one in range(n) for other in range(n) if one > other)

    def linear(n: int) -> int:
        return sum(1 for one in range(n))

    for count, wanted in ((linear, 1.0), (quadratic, 2.0)):
        counts = [operations(lambda n=n, count=count: count(n)) for n in (32, 64, 128)]
        assert growth(counts) == pytest.approx(wanted, abs=0.05)


@pytest.mark.parametrize("label", BY_LABEL)
def test_no_case_grows_by_more_than_it_needs(label: str) -> None:
    # Attention over the context, the second degree of a prefill, is compiled: 1 in Python.
    assert counted(BY_LABEL[label]) <= min(BY_LABEL[label].needs, 1) + TOLERATED


# --- what was quadratic ---------------------------------------------------------------------------


def test_red_steps_that_go_through_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row's step picked its keys out of those of all rows."""

    real = Tap.steps

    def steps(self: Tap, logits: np.ndarray, pos: int, forms: Forms) -> list[Step]:
        entries = [entry for step in real(self, logits, pos, forms) for entry in step.entries]
        rows = range(len(logits))
        picked = [[one for one in entries if one.key.pos == pos + m] for m in rows]
        return [Step(logits[m], picked[m]) for m in rows]

    monkeypatch.setattr(Tap, "steps", steps)
    case = BY_LABEL["rows: step_rows, all keys"]
    assert counted(case) > case.needs + TOLERATED


def lines_of_rows(rows: int) -> int:
    """Operations of a program's reply to a request of so many rows."""
    requests = _Requests(None)
    kind = TensorType("f32", (1,))
    keys = [Key(pos, layer, "x") for pos in range(rows) for layer in range(8)]
    requests.tap.entries += [Entry(key, 1, kind) for key in keys]
    found: list[str] = []
    logits = [np.zeros(1, np.float32)] * rows
    count = operations(lambda: found.extend(requests._rows(logits)))
    assert len(found) == 10 * rows
    assert found[10:12] == ["row 1", "t1_l0_x 0000000000000001 f32[1]"]
    return count


def test_rows_of_a_program_do_not_go_through_all_rows() -> None:
    """Each row picked its keys out of those of all rows."""
    assert growth([lines_of_rows(rows) for rows in (16, 32, 64)]) == pytest.approx(1, abs=TOLERATED)


def embedding_searches(monkeypatch: pytest.MonkeyPatch, slow: bool) -> list[int]:
    """Operations of the search for the embedding at each of eight positions; ``slow``: as it was,
    among the keys of all positions."""
    real, counts = Flow._find_embedding, []

    def search(self: Flow, visit: Any, before: int) -> None:
        if slow:
            assert [key for key in self._told if key.pos == visit.pos]
        real(self, visit, before)

    def counting(self: Flow, visit: Any, before: int) -> None:
        counts.append(operations(lambda: search(self, visit, before)))

    run = run_of(1, 8)
    with monkeypatch.context() as patch:
        patch.setattr(Flow, "_find_embedding", counting)
        diff_engines(*sides_of("cpu", run), run, Ask())
    return counts


def test_births_of_a_position_do_not_go_through_those_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = embedding_searches(monkeypatch, slow=False)[-8:]  # of the decode, after the prompt's
    assert max(counts) < 1.1 * min(counts)
    red = embedding_searches(monkeypatch, slow=True)[-8:]
    assert red == sorted(red)
    assert red[-1] > 1.1 * red[0]


def counting_numpy(counts: list[int]) -> Any:
    """NumPy, whose ``array`` gives arrays that count the elements that operations on them see."""

    class Counted(np.ndarray):
        def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **more: Any) -> Any:
            plain = [np.asarray(one) if isinstance(one, Counted) else one for one in given]
            counts.append(max(np.size(one) for one in plain))
            return getattr(ufunc, method)(*plain, **more)

    class Module:
        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        def array(self, *given: Any) -> Any:
            return np.array(*given).view(Counted)

    return Module()


def seen(lines: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Elements that the prefixes of so many lines go through, beside the bytes."""
    counts: list[int] = []
    data, ends = bytes(range(64)) * lines, list(range(64, 64 * lines + 1, 64))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "numpy", counting_numpy(counts))
        found = fnv1a64_prefixes(data, ends)
    assert found[-1] == fnv1a64(data)
    return sum(counts)


def test_prefixes_see_every_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block of bytes compared all ends with its own."""
    assert [seen(lines, monkeypatch) for lines in (1024, 2048, 4096)] == [1024, 2048, 4096]


def test_red_an_end_that_is_compared_is_counted() -> None:
    counts: list[int] = []
    ends = counting_numpy(counts).array([64, 128, 192], np.int64)
    assert ends[(ends > 64) & (ends <= 128)].tolist() == [128]
    assert counts == [3, 3]


def positions_fed(n: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many tokens are fed to get the logits of ``n`` positions again."""
    run = run_of(1, n)
    side = sides_of("cpu", run)[0]
    done = runs.run_side(side, run)
    wanted = frozenset(entry.key for entry in done.dump.entries if entry.key.field == "logits")
    fed: list[int] = []
    real = side.engine.step

    def step(token: int, plan: Plan | None = None) -> Step:
        fed.append(token)
        return real(token, plan)

    monkeypatch.setattr(side.engine, "step", step)
    start = Start(side, run, done.fed, done.start)
    assert len(runs.capture(start, done.dump, wanted)) == n
    return len(fed)


def test_tensors_of_all_positions_are_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each position was walked to from the first: n (n + 1) / 2 steps."""
    assert [positions_fed(n, monkeypatch) for n in (3, 6)] == [3, 6]

    def each(self: Start, wanted: Any, **plan: Any) -> Iterator[Step]:
        for pos in sorted(wanted):
            yield self.step_at(pos, tensors=frozenset(wanted[pos]), **plan)

    monkeypatch.setattr(Start, "walk", each)  # red: as it was
    assert [positions_fed(n, monkeypatch) for n in (3, 6)] == [6, 21]


def test_a_walk_gives_the_bits_of_the_run_from_the_prompt_on() -> None:
    """Positions with a gap, before and after the end of the prompt."""
    run = run_of(1, 4)
    side = sides_of("cpu", run)[0]
    done = runs.run_side(side, run)
    start = Start(side, run, done.fed, done.start)
    wanted = {pos: [Key(pos, None, "logits")] for pos in (1, 3, 6)}
    steps = list(start.walk(wanted))
    alone = [start.step_at(pos, tensors=frozenset(keys)) for pos, keys in wanted.items()]
    assert [step.logits.tobytes() for step in steps] == [step.logits.tobytes() for step in alone]
    assert [set(step.tensors) for step in steps] == [set(keys) for keys in wanted.values()]
    assert steps[0].logits.tobytes() != steps[1].logits.tobytes()


# --- the bench ------------------------------------------------------------------------------------


def test_the_growth_of_a_time_is_the_median_of_pairs() -> None:
    """Rounds that grow by 2 and 4, by 8 and 4, by 2 and 2."""
    found = [[1.0, 2.0, 8.0], [1.0, 8.0, 32.0], [5.0, 10.0, 20.0]]
    assert scaling.growth(found) == [1.0, 2.0]
    case = Case("keys", "made up", 1, (1, 2, 4), lambda engine, size: lambda: None)
    assert scaling.above(case, found)
    assert scaling.line(case, found).endswith("1  ABOVE")
    assert not scaling.above(case, [[1.0, 2.0, 4.0]])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["0"], "the number of rounds must be 1 or more, got 0"),
        (["1", "--only", "nothing"], "no case has 'nothing' in its name"),
    ],
)
def test_red_nothing_to_measure(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        scaling.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_short_call_is_made_again_and_again() -> None:
    clock = iter(range(100))
    calls: list[None] = []
    seconds = scaling.timed(lambda: calls.append(None), lambda: float(next(clock)), 3.0)
    assert seconds == pytest.approx(4 / 3)
    assert len(calls) == 3


def test_every_case_can_be_loaded() -> None:
    assert {case.group for case in CASES} == set(SMALL)
    assert loaded("cpu", run_of(1, 1).model.config, 8).length == 0
