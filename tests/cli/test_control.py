"""The control: a run whose tap does not show what is computed proves nothing and is not run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from parity.comparison.compare import compare_dumps
from parity.dump import MAIN, Dump, Entry, TensorType
from parity.keys import Key
from parity.runs.control import dump_control
from parity.runs.engine_diff import Ask, finish_dumps
from parity.status import Verdict
from tests.cli import engines_for_tests
from tests.cli.running import ENGINES, SHORT, diff, faulty, said
from tests.cli_runner import run_cli


@pytest.fixture(autouse=True)
def nothing_shared() -> Iterator[None]:
    engines_for_tests.Aliased.shared.clear()
    yield
    engines_for_tests.Aliased.shared.clear()


@pytest.mark.parametrize("bisect", [(), ("--bisect",)], ids=["linear", "bisect"])
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("DeadTap", "nothing"),
        ("StaleTap", "nothing"),
        ("Aliased", "nothing"),
        ("WrongPlace", "_logits"),
    ],
)
def test_red_tap_that_does_not_show_what_is_computed(
    tmp_path: Path, name: str, found: str, bisect: tuple[str, ...]
) -> None:
    status, tree = diff(tmp_path, "--ref", "cpu", "--dut", faulty(name), *bisect)
    assert (status, tree.verdict, tree.level) == (3, "not_run", "none")
    assert tree.counts.same == tree.counts.total
    assert tree.control is not None
    assert not tree.control.fired
    reason, next_step = tree.reason.split("\n")
    planted = tree.control.key
    assert reason.startswith(
        f"the control did not fire: a fault planted at {planted} was found at "
    )
    assert reason.endswith(found)
    assert next_step == f"the tap of {ENGINES}:{name} does not show what it computes: parity doctor"


def test_red_one_buffer_for_both_sides(tmp_path: Path) -> None:
    """The first side's entries are told by the second one too: equal, and worth nothing."""
    both = faulty("Aliased")
    status, tree = diff(tmp_path, "--ref", both, "--dut", both)
    assert (status, tree.verdict) == (3, "not_run")


def test_control_that_did_not_fire_is_said_in_each_report() -> None:
    words = ("diff", *SHORT, "--dut", faulty("DeadTap"))
    console = run_cli(*words).stdout
    assert console.startswith("NOT RUN  the control did not fire: a fault planted at ")
    assert "control  did not fire: 1 ULP at " in console
    quiet = run_cli(*words, "-q")
    assert (quiet.status, quiet.stderr) == (3, "")
    assert quiet.stdout.startswith("not run: the control did not fire: a fault planted at ")
    assert quiet.stdout.count("\n") == 1


@pytest.mark.parametrize("seed", range(8))
def test_control_fires_wherever_it_is_planted(tmp_path: Path, seed: int) -> None:
    status, tree = diff(tmp_path, "--dut", "cpu", "--seed", str(seed), "--fields", "+ffn")
    assert (status, tree.verdict) == (0, "same")
    assert tree.control is not None
    assert tree.control.found == tree.control.key
    unit = tree.control.unit
    assert unit == ("step" if tree.control.key.endswith(("_k", "_v", "_topk")) else "ULP")


def test_control_goes_by_the_seed(tmp_path: Path) -> None:
    planted = set()
    for seed in range(4):
        _, tree = diff(tmp_path, "--dut", "cpu", "--seed", str(seed))
        assert tree.control is not None
        planted.add((tree.control.key, tree.control.element))
    assert len(planted) == 4


# At dump level.


def dump(count: int = 20) -> Dump:
    """A dump of ``count`` keys."""
    kind = TensorType("f32", (4,))
    entries = [Entry(Key(0, layer, "x"), 7919 * layer, kind) for layer in range(count)]
    return Dump({"hash": "fnv1a64"}, {MAIN: entries}, "made")


def test_dump_control_finds_one_changed_digit() -> None:
    for seed in range(20):
        control = dump_control(dump(), dump(), seed)
        assert (control.kind, control.fired, control.found) == ("dump level", True, control.key)


def test_dump_control_changes_nothing_in_the_dump_itself() -> None:
    given = dump()
    dump_control(dump(), given, 3)
    assert given == dump()


def test_red_dump_control_that_cannot_find_its_fault() -> None:
    """A difference elsewhere, before the planted one, is what the comparison names."""
    first, *rest = dump().entries
    ref = Dump({"hash": "fnv1a64"}, {MAIN: [replace(first, digest=1), *rest]}, "other")
    control = dump_control(ref, dump(), 3)
    assert not control.fired
    tree = compare_dumps(dump(), dump())
    tree.verdict = Verdict.SAME
    finish_dumps(tree, ref, dump(), Ask(seed=3))
    assert tree.verdict is Verdict.NOT_RUN
    assert "the control did not fire" in tree.reason


def test_not_run_has_no_control_and_no_stdout_in_error() -> None:
    result = run_cli("diff", *SHORT, "--dut", "exec:true")
    assert said(result)[1] == ""
