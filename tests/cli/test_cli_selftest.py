"""parity selftest: green as it is, and red, naming what was missed, with a comparison that is blind
to something."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.comparison.compare import compare_dumps
from parity.dump import Dump, Entry
from parity.fnv import fnv1a64_array
from parity.model.model import synthetic
from parity.protocol import EngineSettings
from parity.selftest.faults import FAULTS, Want
from parity.selftest.levels import EngineRuns, TensorFiles, made_tensors
from parity.selftest.planting import Trial, try_level
from parity.tree import Tree
from parity_cpu.engine import Engine as CpuEngine
from parity_cuda.engine import EmuEngine
from tests.cli_runner import Result, run_cli

ENGINES = "tests.red.selftest_engines"
LEVELS = ["dumps", "npz", "cpu moe-tiny", "cpu hybrid-tiny", "emu moe-tiny", "emu hybrid-tiny"]
NAMES = [fault.name for fault in FAULTS]


def selftest(tmp_path: Path, *words: str) -> tuple[Result, dict[str, Any]]:
    path = tmp_path / "selftest.json"
    result = run_cli("selftest", "--json", str(path), *words)
    assert path.exists(), result.stderr
    return result, json.loads(path.read_text())


@pytest.fixture(scope="module")
def green(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, dict[str, Any]]:
    """One run of all that works without a device."""
    words = ("--engine", "cpu", "--engine", "emu")
    return selftest(tmp_path_factory.mktemp("selftest"), *words)


# --- green ----------------------------------------------------------------------------------------


def test_every_fault_is_caught_at_exactly_its_key(green: tuple[Result, dict[str, Any]]) -> None:
    result, body = green
    assert (result.status, body["format"], body["version"], body["passed"]) == (
        *(0, "parity-selftest", 2),
        True,
    )
    trials = [Trial(**trial) for trial in body["trials"]]
    assert [(one.level, one.fault) for one in trials] == [
        (level, name) for level in LEVELS for name in NAMES
    ]
    for one in trials:
        assert one.caught
        if one.want == Want.CAUGHT:
            assert (one.said, one.status, one.found) == ("diverged", 1, one.key)
            assert one.differ >= 1
        elif one.want == Want.REFUSED:
            assert (one.said, one.status, one.found) == ("refused", 2, one.key)
        elif one.fault == "same bytes with a NaN" and " " in one.level:
            assert (one.said, one.status, one.found) == ("not run", 3, None)
        else:
            assert (one.said, one.status, one.found, one.differ) == ("same", 0, None, 0)
    assert body["seconds"] < 30


def test_a_fault_in_an_engine_is_used_too(green: tuple[Result, dict[str, Any]]) -> None:
    """What the next ops read is the changed value: keys after the planted one differ."""
    differ = {(one["level"], one["fault"]): one["differ"] for one in green[1]["trials"]}
    for level in LEVELS[2:]:
        for fault in ("two rows swapped", "every sign flipped", "transposed, same shape"):
            assert differ[level, fault] > 1
        assert differ[level, "f32 to f64"] == differ[level, "missing key"] == 1


def test_both_engines_plant_the_same_faults(green: tuple[Result, dict[str, Any]]) -> None:
    """Twin engines: the same key, and the same keys after it differ."""
    trials = [Trial(**trial) for trial in green[1]["trials"]]
    for name in ("moe-tiny", "hybrid-tiny"):
        cpu, emu = (
            [(one.fault, one.key, one.differ) for one in trials if one.level == f"{engine} {name}"]
            for engine in ("cpu", "emu")
        )
        assert cpu == emu


def test_table_fits_80_columns(green: tuple[Result, dict[str, Any]]) -> None:
    lines = green[0].stdout.splitlines()
    assert lines[0] == "PASSED  78 of 78 faults caught, 18 of 18 equal pairs without an alarm"
    assert lines[2].split() == ["fault", "dumps", "npz", *["cpu"] * 2, *["emu"] * 2]
    assert lines[3].split() == ["moe", "hybrid"] * 2
    rows = {re.split(" {2,}| (?=caught)", line.strip())[0]: line for line in lines[4:20]}
    assert [*rows] == NAMES
    assert rows["+0 to -0"].split()[3:] == ["caught"] * 6
    assert rows["key twice"].endswith(" exit 2" * 6)
    assert rows["other line order"].split()[3:] == ["noted"] * 6
    assert rows["same bytes with a NaN"].split()[5:] == ["quiet"] * 6
    assert max(map(len, lines)) <= 80
    planted = [line for line in lines if "planted at t" in line]
    assert [line[11:27].rstrip() for line in planted] == LEVELS


@pytest.mark.usefixtures("one_family")
def test_quiet_and_json_on_stdout() -> None:
    words = ("selftest", "--engine", "cpu", "--seed", "3")
    quiet = run_cli(*words, "-q")
    text = "PASSED  39 of 39 faults caught, 9 of 9 equal pairs without an alarm\n"
    assert (quiet.status, quiet.stdout, quiet.stderr) == (0, text, "")
    body = json.loads(run_cli(*words, "--json", "-").stdout)
    assert (body["passed"], body["seed"], len(body["trials"])) == (True, 3, 48)


def test_another_seed_plants_elsewhere(tmp_path: Path) -> None:
    keys = {}
    for seed in range(5):
        level = TensorFiles(tmp_path, seed, _compare)
        trials = [*try_level(level, lambda name, at: None)]
        assert all(trial.caught for trial in trials)
        keys[seed] = trials[0].key
    assert len(set(keys.values())) > 2
    assert made_tensors(1)[0][1].tobytes() != made_tensors(2)[0][1].tobytes()


def _compare(ref: Path, dut: Path) -> Tree:
    from parity.cli.selftesting import _compare_paths

    return _compare_paths(ref, dut)


@pytest.mark.parametrize("engine", [CpuEngine, EmuEngine])
@pytest.mark.parametrize("name", ["moe-tiny", "hybrid-tiny"])
def test_exact_key_by_a_linear_scan(name: str, engine: type[CpuEngine]) -> None:
    """The entries of both runs, walked one by one without the comparison, part at the key."""
    parted: dict[str, str | None] = {}
    pairs: list[tuple[Dump, Dump]] = []

    def compare(ref: Dump, dut: Dump) -> Tree:
        pairs.append((ref, dut))
        return compare_dumps(ref, dut)

    level = EngineRuns(name, engine(EngineSettings()), synthetic(name, 5), 5, compare)
    for fault in FAULTS:
        if fault.want is not Want.CAUGHT:
            continue
        level.compare(fault)
        ref, dut = pairs[-1]
        ends = [Entry(ref.entries[0].key._replace(field="end"), 0)]
        walk = zip([*ref.entries, *ends], [*dut.entries, *ends], strict=False)
        one, other = next(pair for pair in walk if pair[0] != pair[1])
        parted[fault.name] = (other if fault.edit == "extra" else one).key.tag
        assert parted[fault.name] == level.key_of(fault)
    assert len(parted) == 12


@pytest.fixture
def one_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the time: what a comparison is blind to does not depend on the family."""
    monkeypatch.setattr("parity.cli.selftesting.MODELS", ("moe-tiny",))


# --- blind comparisons ----------------------------------------------------------------------------


def _entries(dump: Dump, change: Callable[[Entry], Entry]) -> Dump:
    segments = {name: [change(entry) for entry in part] for name, part in dump.segments.items()}
    return replace(dump, segments=segments)


def without_types(ref: Dump, dut: Dump, **more: Any) -> Tree:
    """Digests alone."""
    bare = [_entries(side, lambda entry: replace(entry, type=None)) for side in (ref, dut)]
    tree = compare_dumps(*bare, **more)
    tree.notes = [note for note in tree.notes if not note.startswith("dtype and shape")]
    return tree


def without_shapes(ref: Dump, dut: Dump, **more: Any) -> Tree:
    """Digest and dtype."""

    def flat(entry: Entry) -> Entry:
        return replace(entry, type=entry.type and replace(entry.type, shape=()))

    return compare_dumps(_entries(ref, flat), _entries(dut, flat), **more)


def common_keys(ref: Dump, dut: Dump, **more: Any) -> Tree:
    """The keys that both sides have."""
    sides = [{entry.key for entry in side.entries} for side in (ref, dut)]
    both = sides[0] & sides[1]
    cut = [
        replace(side, segments={"": [entry for entry in side.entries if entry.key in both]})
        for side in (ref, dut)
    ]
    return compare_dumps(*cut, **more)


def keys_of_the_ref(ref: Dump, dut: Dump, **more: Any) -> Tree:
    """Whatever the dut has beside is left out."""
    known = {entry.key for entry in ref.entries}
    kept = [entry for entry in dut.entries if entry.key in known]
    return compare_dumps(ref, replace(dut, segments={"": kept}), **more)


def line_by_line(ref: Dump, dut: Dump, **more: Any) -> Tree:
    """Line n against line n, whatever its key."""
    keys = [entry.key for entry in ref.entries]
    turned = [replace(e, key=key) for e, key in zip(dut.entries, keys, strict=False)]
    return compare_dumps(ref, replace(dut, segments={"": turned}), **more)


def last_of_two(ref: Dump, dut: Dump, **more: Any) -> Tree:
    """A key that stands twice counts once."""
    once = [
        replace(side, segments={"": [*{entry.key: entry for entry in side.entries}.values()]})
        for side in (ref, dut)
    ]
    return compare_dumps(*once, **more)


def last_key(ref: Dump, dut: Dump, **more: Any) -> Tree:
    """Right, but for the key that it names: the last that differs."""
    tree = compare_dumps(ref, dut, **more)
    apart = [row.key for row in tree.keys if row.state != "same"]
    tree.first = apart[-1] if tree.first else None
    return tree


def always_same(ref: Dump, dut: Dump, **more: Any) -> Tree:
    """The ref against itself."""
    return compare_dumps(ref, replace(ref, source=dut.source), **more)


def nothing_at_all(ref: Dump, dut: Dump, **more: Any) -> Tree:
    """Not one key, which is not run."""
    return compare_dumps(replace(ref, segments={}), replace(dut, segments={}), **more)


FILES, RUNS = ("dumps", "npz"), ("cpu moe-tiny",)
BLIND: list[tuple[Callable[..., Tree], set[str], tuple[str, ...]]] = [
    (without_types, {"same bytes, new shape"}, (*FILES, *RUNS)),
    (without_shapes, {"same bytes, new shape"}, (*FILES, *RUNS)),
    (common_keys, {"missing key", "extra key"}, (*FILES, *RUNS)),
    (keys_of_the_ref, {"extra key"}, (*FILES, *RUNS)),
    (line_by_line, {"extra key", "key twice", "other line order"}, RUNS),
    (last_of_two, {"key twice"}, RUNS),  # files are refused when they are read
    (last_key, {"two rows swapped", "every sign flipped", "stale copy of a row"}, RUNS),
    (always_same, {*NAMES[:12], "other line order"}, (*FILES, *RUNS)),
    (nothing_at_all, {*NAMES[:12], "other line order", "same bytes"}, (*FILES, *RUNS)),
]


@pytest.mark.parametrize(
    ("blind", "missed", "levels"), BLIND, ids=[row[0].__name__ for row in BLIND]
)
@pytest.mark.usefixtures("one_family")
def test_red_blind_comparison_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    blind: Callable[..., Tree],
    missed: set[str],
    levels: tuple[str, ...],
) -> None:
    if levels != RUNS:
        monkeypatch.setattr("parity.comparison.files.compare_dumps", blind)
    monkeypatch.setattr("parity.cli.selftesting.compare_dumps", blind)
    result, body = selftest(tmp_path, "--engine", "cpu")
    assert (result.status, body["passed"]) == (1, False)
    assert result.stdout.startswith("FAILED  ")
    for level in levels:
        found = {one["fault"] for one in body["trials"] if one["level"] == level}
        assert found == set(NAMES)
        uncaught = {
            one["fault"] for one in body["trials"] if one["level"] == level and not one["caught"]
        }
        assert missed <= uncaught
        if blind in (without_types, without_shapes, common_keys, keys_of_the_ref, last_of_two):
            assert uncaught == missed
        for fault in missed:
            word = "ALARM" if fault in NAMES[13:] else "MISSED"
            assert f"  {word}  {fault}, {level}, at t" in result.stdout


@pytest.mark.usefixtures("one_family")
def test_red_hash_that_sees_no_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum over the elements, as a checksum of tensors may be."""

    def total(array: np.ndarray, basis: int = 0) -> int:
        return int(np.sort(array.reshape(-1)).astype(np.float64).view(np.uint64).sum())

    monkeypatch.setattr("parity.dumps.tensor_files.fnv1a64_array", total)
    uncaught = _uncaught(selftest(tmp_path, "--engine", "cpu")[1], "npz")
    assert {"two rows swapped", "two elements swapped", "transposed, same shape"} <= uncaught
    assert uncaught.isdisjoint({"1 ULP in one element", "missing key", "same bytes", "key twice"})


@pytest.mark.usefixtures("one_family")
def test_red_hash_that_sees_no_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsigned(array: np.ndarray, basis: int = 0) -> int:
        return fnv1a64_array(np.abs(array))

    monkeypatch.setattr("parity.dumps.tensor_files.fnv1a64_array", unsigned)
    result, body = selftest(tmp_path, "--engine", "cpu")
    assert _uncaught(body, "npz") == {"every sign flipped", "+0 to -0"}
    assert _uncaught(body, "dumps") == set()
    assert "  MISSED  +0 to -0, npz, at t" in result.stdout
    assert ": not found: same, exit 0\n" in result.stdout or "were changed" in result.stdout


@pytest.mark.usefixtures("one_family")
def test_red_numbers_compared_as_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A NaN that is not itself is a false alarm."""
    made = iter(range(10**6))

    def numeric(array: np.ndarray, basis: int = 0) -> int:
        salt = next(made) if np.isnan(array).any() else 0
        return fnv1a64_array(array.astype(np.float64) + 0.0) ^ salt

    monkeypatch.setattr("parity.dumps.tensor_files.fnv1a64_array", numeric)
    result, body = selftest(tmp_path, "--engine", "cpu")
    assert _uncaught(body, "npz") == {"+0 to -0", "same bytes with a NaN"}
    assert "  ALARM  same bytes with a NaN, npz, at t" in result.stdout


@pytest.mark.usefixtures("one_family")
def test_red_elements_that_are_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.comparison.files._add_elements", lambda *_: None)
    result, body = selftest(tmp_path, "--engine", "cpu")
    assert result.status == 1
    assert "1 ULP in one element" in _uncaught(body, "npz")
    assert "0 elements differ, 1 were changed" in result.stdout


@pytest.mark.usefixtures("one_family")
def test_red_key_that_stands_twice_in_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parity.dumps.reader._repeated_row", lambda table: None)
    monkeypatch.setattr(
        "parity.dumps.tensor_files.unique_names", lambda _, names: dict.fromkeys(names)
    )
    for module in ("parity.comparison.files", "parity.runs.control"):
        monkeypatch.setattr(f"{module}.compare_dumps", last_of_two)
    _, body = selftest(tmp_path, "--engine", "cpu")
    for level in FILES:
        assert "key twice" in _uncaught(body, level)


def _uncaught(body: dict[str, Any], level: str) -> set[str]:
    return {one["fault"] for one in body["trials"] if one["level"] == level and not one["caught"]}


# --- engines in which nothing can be planted ------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("Unchanging", "not planted: the engine did not ask for the change"),
        ("OneElement", "not planted: the engine did not ask for the change"),
        ("OtherChange", "not planted: the engine did not hash the value that was put there"),
    ],
)
@pytest.mark.usefixtures("one_family")
def test_red_fault_that_is_not_planted_is_not_caught(
    tmp_path: Path, engine: str, said: str
) -> None:
    result, body = selftest(tmp_path, "--engine", f"{ENGINES}:{engine}")
    level = f"{ENGINES}:{engine} moe-tiny"
    assert result.status == 1
    told = {one["fault"]: one["problem"] for one in body["trials"] if one["level"] == level}
    for fault in ("1 ULP in one element", "every sign flipped", "+0 to -0", "NaN payload"):
        assert told[fault] == said
    assert {"f32 to f64", "missing key", "key twice"}.isdisjoint(_uncaught(body, level))
    assert said in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("NoInject", "the engine lacks the capability 'inject', needed for selftest"),
        ("Absent", "absent: no device"),
        ("Tight", "tight: no memory"),
    ],
)
def test_engine_asked_for_by_name_must_run(engine: str, said: str) -> None:
    result = run_cli("selftest", "--engine", f"{ENGINES}:{engine}")
    assert (result.status, result.stdout) == (3, "")
    assert said in result.stderr


@pytest.mark.usefixtures("one_family")
def test_engine_that_does_not_work_here_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.cli.selftesting.BUILT_IN", ("cpu", f"{ENGINES}:Absent"))
    result = run_cli("selftest")
    assert result.status == 0
    assert "  not run  absent: no device\n" in result.stdout
    monkeypatch.setattr("parity.cli.selftesting.BUILT_IN", (f"{ENGINES}:Absent", "cpu"))
    assert run_cli("selftest").status == 3


def test_no_engine_and_a_file_that_cannot_be_written() -> None:
    result = run_cli("selftest", "--engine", "x.dump")
    assert (result.status, result.stdout) == (2, "")
    assert "--engine x.dump: not an engine" in result.stderr
    assert run_cli("selftest", "--json", "no/such/folder.json").status == 2
