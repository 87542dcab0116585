"""A small study, and that a study can fail: a broken comparison, tap, oracle or digest shows."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity.runs.engine_diff
import parity_cpu.tap
from parity.families import every_field
from parity.keys import Key, KeyOrder
from parity.model.config import preset
from parity.tree import Tree
from parity_cpu.engine import Engine
from tests.study import oracle, run, tool_worker
from tests.study.cases import HELD, NONE, TAPPED, Outcome
from tests.study.draw import PRESETS, Draw
from tests.study.equal import Equal
from tests.study.faults import flush, nibble, ulp
from tests.study.kinds import KINDS
from tests.study.report import Study, lines
from tests.study.tools import Folder

SEED = 1


def small(kind: str, faults: int = 1, pairs: int = 0) -> Study:
    """A few faults of one kind, no other tools."""
    return run.run_study(SEED, faults, pairs, (kind,), python="")


# --- the study ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study() -> Study:
    return run.run_study(SEED, len(KINDS), 3)


def test_a_fault_of_every_kind_is_found_at_the_right_key(study: Study) -> None:
    assert study.problems == []
    assert {one.kind for one in study.effective} == set(KINDS)
    assert all(one.detected and one.right for one in study.effective)
    assert all(one.forwards > 0 and one.changed > 0 for one in study.effective)


def test_weights_are_caught_by_their_digest(study: Study) -> None:
    digests = [one.digest for one in study.faults if one.kind == "weight"]
    assert digests
    assert set(digests) == {True}


def test_equal_pairs_raise_no_alarm(study: Study) -> None:
    assert [(pair.equal, pair.alarm) for pair in study.equal + study.nan] == [(True, False)] * 6


def test_report_shows_every_kind_and_tools_that_are_not_installed(study: Study) -> None:
    text = "\n".join(lines(study))
    for kind in KINDS:
        assert f"\n{kind} " in text
    assert "no problem found" in text
    for tool in study.tools:
        assert tool.error == "" or f"{tool.name}: not installed ({tool.error})" in text
    assert {tool.name for tool in study.tools} == set(tool_worker.TOOLS)
    assert json.loads(json.dumps(study.to_json()))["problems"] == []


def test_a_fault_is_made_again_from_its_number_alone(
    study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    first = next(one for one in study.effective if one.kind == "activation")
    assert run.main(["--fault", str(first.number)]) == 0
    told = capsys.readouterr().out
    assert f"{first.what}\n" in told
    assert f"wanted    {first.wanted}\n" in told
    assert f"found     {first.wanted}\n" in told


def test_numbers_stand_for_kinds_in_turn() -> None:
    found = list(run.numbers(SEED, "tie", 3))
    assert [run.kind_of(one) for one in found] == ["tie"] * 3
    assert found[0] == SEED * run.BLOCK + list(KINDS).index("tie")
    assert found[1] - found[0] == len(KINDS)


def test_neighbouring_numbers_draw_nothing_in_common() -> None:
    streams = [[Draw(one).below(1 << 40) for _ in range(1)] for one in range(100)]
    draws = [Draw(7), Draw(8)]
    words = [[draw.below(1 << 40) for _ in range(50)] for draw in draws]
    assert not set(words[0]) & set(words[1])
    assert len({one[0] for one in streams}) == 100


# --- the oracle -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_order_of_making_is_the_dataflow_order(name: str) -> None:
    config = preset(name)
    keys = oracle.keys_at(config, (0, 1))
    order = KeyOrder()
    assert keys == sorted(keys, key=order)
    assert {key.field for key in keys} == set(every_field(config))


def test_oracle_sees_dtype_shape_and_every_byte() -> None:
    zero = np.zeros(4, np.float32)
    assert not oracle.unlike(zero, zero.copy())
    assert oracle.unlike(zero, -zero)
    assert oracle.unlike(zero, zero.reshape(2, 2))
    assert oracle.unlike(zero, zero.view(np.int32))
    key = Key(0, None, "logits")
    assert oracle.changed({key: zero}, {}) == oracle.changed({}, {key: zero}) == [key]


def test_changes_move_what_they_say() -> None:
    values = np.array([1.0, -2.0, 0.0, 1e-40], np.float32)
    moved = values.copy()
    ulp(1)(moved)
    assert (moved.view(np.int32) - values.view(np.int32)).tolist() == [0, 1, 0, 0]
    flush(values)
    assert values.view(np.uint32).tolist() == [0x3F800000, 0xC0000000, 0, 0]
    codes = np.array([0xF0, 0x07], np.uint8)
    nibble(0, True)(codes)
    nibble(1, False)(codes)
    assert codes.tolist() == [0xE0, 0x08]


# --- a study can fail -----------------------------------------------------------------------------

Compare = Callable[..., Tree]


def broken_compare(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Compare, Any, Any], Tree]
) -> None:
    plain = parity.runs.engine_diff.compare_dumps
    monkeypatch.setattr(
        parity.runs.engine_diff, "compare_dumps", lambda ref, dut, **asked: change(plain, ref, dut)
    )


def test_red_blind_comparison_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    broken_compare(monkeypatch, lambda plain, ref, dut: plain(ref, ref))
    found = small("-0", 4)  # a sign reaches no state, which would be compared too
    assert {(one.detected, one.right) for one in found.effective} == {(False, False)}
    assert found.problems[0].startswith(f"fault {found.effective[0].number} (-0: ")
    text = "\n".join(lines(found))
    assert re.search(r"^-0 +4 +0\.0 % +0\.0 %", text, re.MULTILINE)
    assert text.count("MISS  fault") == 4
    assert run.main(["--n", "1", "--equal", "0", "--kinds", "-0", "--tools", ""]) == 1


def test_red_comparison_one_key_late_names_the_wrong_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(plain: Compare, ref: Any, dut: Any) -> Tree:
        tree = plain(ref, dut)
        differing = [row.key for row in tree.keys if row.state == "differs"]
        return replace(tree, first=differing[1]) if len(differing) > 1 else tree

    broken_compare(monkeypatch, late)
    found = small("stale KV row")
    (one,) = found.effective
    assert (one.detected, one.right) == (True, False)
    assert f"oracle {one.wanted}, parity diverged {one.found}" in found.problems[0]


def test_red_tap_that_hashes_half_of_a_value_misses_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = parity_cpu.tap.digest

    def half(data: np.ndarray, basis: np.uint64, floats: bool) -> tuple[int, int, int]:
        found: tuple[int, int, int] = plain(data[: data.size // 8 * 4], basis, floats)
        return found

    monkeypatch.setattr(parity_cpu.tap, "digest", half)
    found = small("-0", 4)
    assert 0 < sum(one.miss for one in found.effective) < 4


def test_red_restless_tap_raises_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    count = itertools.count()
    monkeypatch.setattr(parity_cpu.tap, "digest", lambda data, basis, floats: (next(count), 0, -1))
    found = small("activation", pairs=3)
    assert sum(pair.alarm for pair in found.equal) > 0
    assert any(text.startswith("pair ") for text in found.problems)


def test_red_weights_without_digests_are_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "weights", lambda self: {})
    (one,) = small("weight").effective
    assert (one.detected, one.right, one.digest, one.miss) == (True, True, False, True)


def test_red_birth_that_is_not_named_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = parity.runs.engine_diff.name_births

    def forget(tree: Tree, *rest: Any) -> None:
        plain(tree, *rest)
        if tree.births is not None:
            tree.births = replace(tree.births, found=[])

    monkeypatch.setattr(parity.runs.engine_diff, "name_births", forget)
    (one,) = small("NaN payload").effective
    assert (one.detected, one.right, one.born, one.miss) == (True, True, False, True)


def test_red_blind_oracle_contradicts_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "unlike", lambda ref, dut: False)
    monkeypatch.setattr(run, "MOST", 1)
    found = small("activation")
    assert [(one.effect, one.verdict) for one in found.faults] == [(NONE, "diverged")]
    assert len(found.problems) == 2  # no fault was expected, and none of the kind counted


def test_red_error_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(plain: Compare, ref: Any, dut: Any) -> Tree:
        raise KeyError("broken")

    broken_compare(monkeypatch, fails)
    (one,) = small("activation").effective
    assert (one.verdict, one.miss) == ("error: KeyError: 'broken'", True)


def test_red_too_few_faults_of_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MOST", 0)
    assert small("tie").problems == ["tie: 0 effective faults, 1 wanted"]


def test_held_faults_must_be_named_and_faults_without_effect_green() -> None:
    assert Outcome(1, effect=NONE, verdict="diverged").miss
    assert not Outcome(1, effect=NONE, verdict="same").miss
    assert Outcome(1, effect=HELD, verdict="diverged", detected=True).miss
    assert not Outcome(1, effect=HELD, verdict="diverged", detected=True, right=True).miss
    assert Outcome(1, effect=TAPPED, verdict="same", right=True).miss
    assert Equal(1, "a pair", verdict="diverged").alarm


@pytest.mark.parametrize(
    "words", [("--n", "0"), ("--kinds", "gremlins"), ("--seed", "-1"), ("--equal", "-1")]
)
def test_red_bad_arguments(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(list(words)) == 2
    assert capsys.readouterr().err.startswith("study: ")


# --- other tools ----------------------------------------------------------------------------------


def test_first_tensor_that_a_tool_flags() -> None:
    _, differs = tool_worker.nmse()
    ones, bumped, off = (np.full(8, value, np.float32) for value in (1.0, 1.0 + 2**-23, 2.0))
    assert tool_worker.first_flagged(differs, [(ones, ones), (ones, bumped)]) is None
    assert tool_worker.first_flagged(differs, [(ones, bumped), (ones, off)]) == 1


def test_tensors_are_handed_over_in_order(tmp_path: Path) -> None:
    folder = Folder()
    pairs = [(np.full(2, at, np.int8), np.full(2, at + 1, np.int8)) for at in range(12)]
    folder.add("f1", pairs)  # type: ignore[arg-type]
    read = tool_worker.read_pairs(folder.path / "f1.npz")
    folder.close()
    assert [(int(ref[0]), int(dut[0])) for ref, dut in read] == [(at, at + 1) for at in range(12)]
    assert not folder.path.exists()


def test_red_tool_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    def absent() -> tuple[str, Any]:
        raise ModuleNotFoundError("No module named 'gremlins'")

    found = tool_worker.run_tool(absent, [])
    assert found == {"error": "ModuleNotFoundError: No module named 'gremlins'"}
    folder = Folder()
    tools = folder.ask(str(tmp_path / "no-python"))
    folder.close()
    assert {tool.error for tool in tools} == {
        f"{tmp_path / 'no-python'}: No such file or directory"
    }
