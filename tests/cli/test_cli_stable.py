"""parity stable: an engine against itself. A fault that does not come back is found too."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from typing import ClassVar

import pytest

from parity.model.model import Model
from parity.tree import Tree
from parity_cpu.engine import Engine
from tests.cli.running import said
from tests.cli_runner import run_cli
from tests.red.races import SecondLoad

RACES = "tests.red.races"
SHORT = ("--tokens", "1,2,3,4,5,6", "--steps", "3", "--seed", "7")
STEP_KEYS = 4 * 11 + 2


def stable(tmp_path: Path, engine: str, *options: str) -> tuple[int, Tree]:
    """Status and tree of ``parity stable``."""
    path = tmp_path / "run.json"
    result = run_cli("stable", "--engine", engine, *options, "--json", str(path))
    assert path.exists(), result.stderr
    return result.status, Tree.from_json(path.read_text())


# --- green ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["cpu", "cpu:fast", "emu", "emu@shuffled=5", "emu@threads=2"])
def test_engine_that_repeats(tmp_path: Path, engine: str) -> None:
    status, tree = stable(tmp_path, engine, *SHORT, "--n", "4")
    assert (status, tree.verdict, tree.level, tree.first) == (0, "same", "bit", None)
    assert (tree.counts.same, tree.counts.total) == (3 * STEP_KEYS, 3 * STEP_KEYS)
    assert tree.stability is not None
    assert (tree.stability.runs, tree.stability.side, tree.stability.key) == (4, "", "")
    assert [(state.when, state.equal) for state in tree.states] == [("start", True), ("end", True)]
    assert tree.control is not None
    assert (tree.control.kind, tree.control.fired) == ("inject", True)
    assert (
        "runs 1 to 3, with a reset between, by one engine; run 4 by one opened anew" in tree.notes
    )


def test_hybrid_repeats(tmp_path: Path) -> None:
    status, tree = stable(tmp_path, "cpu", *SHORT, "--n", "2", "--model", "hybrid-tiny")
    assert (status, tree.verdict) == (0, "same")
    assert {part.name for part in tree.states[1].parts} >= {"l0_s", "l0_hist", "l3_k"}
    assert "run 1 by one engine; run 2 by one opened anew" in tree.notes


def test_twenty_runs_unless_told_otherwise() -> None:
    result = run_cli("stable", *SHORT[:2], "--steps", "1", "-q")
    assert said(result) == (
        0,
        f"same: {STEP_KEYS} of {STEP_KEYS} keys, level bit, repeatable: 20 runs, control fired\n",
        "",
    )


def test_console_says_what_was_done() -> None:
    result = run_cli("stable", *SHORT, "--n", "3")
    lines = result.stdout.splitlines()
    assert result.status == 0
    assert lines[0] == "SAME  repeatable: 3 runs, 138 of 138 keys equal, bit for bit"
    assert any(line.startswith("  control  fired: 1 ") for line in lines)
    assert any(line.startswith("  engine   cpu ") for line in lines)


def test_every_report_is_written(tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in ("json", "csv", "html", "junit")}
    words = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    assert run_cli("stable", *SHORT, "--n", "2", *words).status == 0
    assert all(path.stat().st_size for path in paths.values())
    assert run_cli("report", str(paths["json"]), "-q").stdout.startswith("same: 138 of 138 keys")


class Counted(Engine):
    """Knows how many engines of its kind there are while one is loaded."""

    alive: ClassVar[weakref.WeakSet[Engine]] = weakref.WeakSet()
    most: ClassVar[int] = 0
    opened: ClassVar[int] = 0

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self.alive.add(self)
        type(self).opened += 1
        type(self).most = max(self.most, len(self.alive))


def test_two_engines_are_opened_one_after_the_other(tmp_path: Path) -> None:
    """The second one needs the room of the first."""
    gc.collect()
    status, _ = stable(tmp_path, f"{__name__}:Counted", *SHORT, "--n", "4")
    assert (status, Counted.opened, Counted.most) == (0, 2, 1)


# --- red ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["atomic_matvec", "racing_matvec"])
def test_race_in_the_prefill(tmp_path: Path, kernel: str) -> None:
    """Blocks in another order each run: the states part before any dumped key."""
    status, tree = stable(tmp_path, f"{RACES}:EmuRace@kernel={kernel}", *SHORT, "--n", "4")
    assert (status, tree.verdict, tree.first, tree.level) == (1, "unstable", None, "none")
    assert tree.stability is not None
    assert (tree.stability.runs, tree.stability.run, tree.stability.side) == (4, 2, "engine")
    assert tree.stability.key == "l0_ks row 0 (position 0)"
    assert tree.reason == "not repeatable, first at start state l0_ks row 0 (position 0) in run 2"
    # The engine opened anew begins with the same order of blocks again.
    assert "2 of 3 repeats are not run 1" in tree.notes
    assert tree.control is None


@pytest.mark.parametrize("kernel", ["atomic_matvec", "racing_matvec"])
def test_race_in_the_decode_steps(tmp_path: Path, kernel: str) -> None:
    status, tree = stable(tmp_path, f"{RACES}:EmuRace@late@kernel={kernel}", *SHORT, "--n", "4")
    assert (status, tree.verdict, tree.first) == (1, "unstable", "t6_l0_kraw")
    assert tree.stability is not None
    assert (tree.stability.key, tree.stability.run) == ("t6_l0_kraw", 2)
    assert tree.stability.tree is not None
    assert (tree.stability.tree.first, tree.stability.tree.verdict) == ("t6_l0_kraw", "diverged")
    assert [state.equal for state in tree.states] == [True, False]
    assert "2 of 3 repeats are not run 1" in tree.notes


def test_race_in_one_order_repeats(tmp_path: Path) -> None:
    """The emulator's own order is one order: nothing is unstable then, and nothing is exact."""
    engine = "tests.red.races:EmuRaceInOrder"
    assert stable(tmp_path, engine, *SHORT, "--n", "3")[0] == 0
    path = tmp_path / "diff.json"
    words = ("--prefill", "ref", "--tokens", "1,2,3", "--n", "1", "--json", str(path))
    assert run_cli("diff", "--ref", "cpu", "--dut", engine, *words).status == 1
    assert Tree.from_json(path.read_text()).first == "t3_l0_kraw"


@pytest.mark.parametrize("run", [2, 5, 7])
def test_one_run_of_many(tmp_path: Path, run: int) -> None:
    options = (*SHORT, "--n", "8")
    status, tree = stable(tmp_path, f"{RACES}:Rare@pos=7@run={run}", *options)
    assert (status, tree.verdict, tree.first) == (1, "unstable", "t7_l3_attn")
    assert tree.stability is not None
    assert (tree.stability.run, tree.stability.runs) == (run, 8)
    assert "1 of 7 repeats are not run 1" in tree.notes
    assert tree.counts.same > STEP_KEYS  # the step before it


def test_earliest_key_of_all_runs_is_named(tmp_path: Path) -> None:
    """Run 2 differs late and run 4 earlier: the earlier key, and its run."""
    status, tree = stable(tmp_path, f"{RACES}:Drifting", "--n", "5")
    assert (status, tree.first) == (1, "t32_l1_kraw")
    assert tree.stability is not None
    assert tree.stability.run == 4
    assert "3 of 4 repeats are not run 1" in tree.notes
    result = run_cli("stable", "--engine", f"{RACES}:Drifting", "--n", "3", "-q")
    line = "unstable: not repeatable, first at t34_l1_kraw in run 2 of 3"
    assert said(result) == (1, f"{line}\n", "")


def test_engine_that_loads_in_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SecondLoad, "opened", 0)
    status, tree = stable(tmp_path, f"{RACES}:SecondLoad", *SHORT, "--n", "3")
    assert (status, tree.verdict) == (1, "unstable")
    assert tree.reason == "not repeatable, first at weight layers.2.q_proj.qs in run 3"
    assert any(note.startswith("weights differ") for note in tree.notes)


def test_end_state_alone(tmp_path: Path) -> None:
    status, tree = stable(tmp_path, f"{RACES}:LateRow", *SHORT, "--n", "5")
    assert (status, tree.verdict, tree.first) == (1, "unstable", None)
    assert tree.reason == "not repeatable, first at end state l3_v row 2 (position 2) in run 3"
    assert tree.counts.same == tree.counts.total


def test_other_choice_at_equal_logits(tmp_path: Path) -> None:
    status, tree = stable(tmp_path, f"{RACES}:OtherChoice", *SHORT, "--n", "3")
    assert (status, tree.verdict, tree.first) == (1, "unstable", "t7_logits")


@pytest.mark.parametrize("name", ["DeadTap", "StaleTap"])
def test_dead_tap_is_not_green(tmp_path: Path, name: str) -> None:
    """A tap that shows what it showed before repeats for ever: the control does not fire."""
    engine = f"tests.cli.engines_for_tests:{name}"
    status, tree = stable(tmp_path, engine, *SHORT, "--n", "2")
    assert (status, tree.verdict) == (3, "not_run")
    assert tree.control is not None
    assert not tree.control.fired


def test_engine_without_injection_has_the_control_at_dump_level(tmp_path: Path) -> None:
    status, tree = stable(tmp_path, "tests.cli.engines_for_tests:NoInject", *SHORT, "--n", "2")
    assert (status, tree.verdict) == (0, "same")
    assert tree.control is not None
    assert (tree.control.kind, tree.control.fired) == ("dump level", True)


def test_engine_without_states_is_compared_by_its_keys(tmp_path: Path) -> None:
    status, tree = stable(tmp_path, "tests.cli.engines_for_tests:NoState", *SHORT, "--n", "2")
    assert (status, tree.verdict, tree.states) == (0, "same", [])
    assert "states not compared: the engine lacks the capability 'state'" in tree.notes


# --- what cannot be run ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--n", "1"), "parity: --n 1: nothing to compare run 1 with"),
        (("--n", "0"), "parity: --n 0: nothing to compare run 1 with"),
        (("--steps", "0"), "parity: --steps 0: nothing to decode"),
        (("--engine", "run.dump"), "parity: --engine run.dump: not an engine"),
        (("--engine", "nosuch"), "parity: 'nosuch' is no engine, no dump file and no program"),
        (("--json", "/nowhere/x.json"), "parity: /nowhere/x.json: cannot be written: no such"),
    ],
)
def test_red_bad_input(words: tuple[str, ...], line: str) -> None:
    result = run_cli("stable", *words)
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith(line)


def test_missing_device_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    path = tmp_path / "run.json"
    result = run_cli("stable", "--engine", "cuda", "--n", "2", "--json", str(path))
    assert (result.status, result.stdout) == (3, "")
    assert result.stderr.startswith("parity: not run: cuda: CuPy is not installed")
    assert Tree.from_json(path.read_text()).verdict == "not_run"


# --- diff against an unstable dut -----------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--prefill", "ref"), ("--bisect",)], ids=" ".join)
def test_diff_calls_it_unstable_and_never_diverged(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = tmp_path / "diff.json"
    words = ("--tokens", "1,2,3", "--n", "2", *options, "--json", str(path))
    result = run_cli("diff", "--ref", "cpu", "--dut", f"{RACES}:EmuRace", *words)
    tree = Tree.from_json(path.read_text())
    assert (result.status, tree.verdict) == (1, "unstable")
    assert tree.stability is not None
    assert tree.stability.side == "dut"
    assert tree.births is None or tree.births.found == []


def test_red_one_engine_is_named_once(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    words = ("--engine", f"{RACES}:EmuRace", *SHORT, "--n", "4", "--json", str(path))
    result = run_cli("stable", *words)
    assert result.status == 1
    tree = Tree.from_json(path.read_text())
    assert tree.ref != tree.dut, "the runs differ in the schedule that they tell of"
    verdict, *lines = result.stdout.splitlines()
    assert verdict.endswith(" of 4, emulated")
    labels = [line.split()[0] for line in lines if line[:2] == "  " and line.strip()]
    assert (labels.count("engine"), labels.count("ref"), labels.count("dut")) == (1, 0, 0)
    assert tree.reproduce == f"parity stable --engine {RACES}:EmuRace {' '.join(SHORT)} --n 4"
