"""isodiff on the built-in engines: every size, every family, and what it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from parity.cli.probing import reproducing
from parity.model.generator import prompt_tokens
from parity.runs.probe import Cost, Found
from parity.status import Verdict
from parity_probes.isodiff import Isodiff
from tests.cli_runner import run_cli
from tests.probes.asking import ENGINES, KINDS, ask_for, model_of, opened, run_probe

SIZES = (*range(2, 9), 16, 17, 32, 33)
LINE = re.compile(
    r"\[SPECTOP1\] pos=(\d+) col=(\d+) top1=(\d+) \[ISOTOP1\] col=(\d+) (\d+) "
    r"\[ISODIFF\] col=(\d+) ndiff=(\d+)(?: first=(\d+) ref=([0-9a-f]{8}) dut=([0-9a-f]{8}) "
    r"ulp=(\d+|none))?"
)


def assert_same(found: Found, columns: int) -> None:
    assert found.verdict is Verdict.SAME, found.headline
    assert f"{columns:,} of {columns:,} columns" in found.headline
    assert len(found.lines) == columns
    assert all(line.endswith("ndiff=0") for line in found.lines)
    assert dict(found.facts)["control"].startswith("fired: ")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_size_equals_single_steps(kind: str, engine: str) -> None:
    found = run_probe(Isodiff, engine, ask_for(kind, SIZES))
    assert_same(found, sum(SIZES))
    assert [cost.m for cost in found.costs] == list(SIZES)
    assert all(cost.batched for cost in found.costs)
    # A device goes through the rows of these inside one launch.
    one_by_one = engine == "cpu" and kind in ("hybrid-tiny", "next-tiny", "gdn")
    expected = ["conv_step", "delta_step"] if one_by_one else []
    assert found.costs[-1].row_by_row == expected


@pytest.mark.parametrize("engine", ENGINES)
def test_the_largest_forward_equals_single_steps(engine: str) -> None:
    assert_same(run_probe(Isodiff, engine, ask_for("dense-tiny", (64,), (0,))), 64)


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_do_not_change_the_fast_tier_either(engine: str) -> None:
    for kind in ("moe-tiny", "hybrid-tiny"):
        found = run_probe(Isodiff, engine, ask_for(kind, (2, 5), (30,)), tier="fast")
        assert_same(found, 7)


@pytest.mark.parametrize("options", [{"descending": ""}, {"shuffled": "3"}, {"threads": "2"}])
def test_no_schedule_of_the_threads_changes_a_row(options: dict[str, str]) -> None:
    for kind in ("moe-tiny", "hybrid-tiny"):
        assert_same(run_probe(Isodiff, "emu", ask_for(kind, (5,)), options=options), 5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["moe-tiny", "hybrid-tiny"])
def test_f32_weights(kind: str, engine: str) -> None:
    found = run_probe(Isodiff, engine, ask_for(kind, (2, 3), weights="f32"))
    assert_same(found, 5)
    assert any("f32_matvec" in name for name in found.costs[0].rows_calls)
    assert not any("q4" in name for name in found.costs[0].rows_calls)


def test_a_row_stands_first_last_and_in_between() -> None:
    found = run_probe(Isodiff, "cpu", ask_for("moe-tiny", (8,), tuple(range(1, 9))))
    assert_same(found, 64)
    assert dict(found.facts)["places"] == "position 8 stood in rows 0..7 of a block"


def test_block_at_position_zero() -> None:
    assert_same(run_probe(Isodiff, "cpu", ask_for("hybrid-tiny", (2, 3), (0,))), 5)


def test_several_seeds_are_several_models() -> None:
    found = run_probe(Isodiff, "cpu", ask_for("moe-tiny", (2, 3), seeds=(7, 8, 9)))
    assert_same(found, 15)
    assert len(set(found.lines)) > 5  # not one seed three times


def test_published_lines_are_those_of_single_steps() -> None:
    """The columns, tokens and order, against an engine that knows nothing of the probe."""
    result = run_cli("isodiff", "--m", "2,3", "--pos", "5:6", "--model", "dense-tiny")
    lines = [line for line in result.stdout.splitlines() if line.startswith("[")]
    engine = opened("cpu", model_of("dense-tiny"), 16)
    tokens = prompt_tokens(7, 16, 512)
    top = [int(np.argmax(engine.step(token).logits)) for token in tokens]
    wanted = [
        f"[SPECTOP1] pos={start} col={col} top1={top[start + col]} "
        f"[ISOTOP1] col={col} {top[start + col]} [ISODIFF] col={col} ndiff=0"
        for size in (2, 3)
        for start in (5, 6)
        for col in range(size)
    ]
    assert lines == wanted
    assert result.status == 0
    assert all(LINE.fullmatch(line) for line in lines)


def test_a_differing_line_gives_index_bits_and_ulp() -> None:
    engine = "tests.red.row_faults:OnCpu@fault=key_too_few"
    result = run_cli("isodiff", "--m", "2", "--pos", "5", "--engine", engine)
    first, second = (LINE.fullmatch(line) for line in result.stdout.splitlines()[:2])
    assert first is not None
    assert second is not None
    assert (first[7], first[8]) == ("0", None)
    ref, dut = (int(second[group], 16) for group in (9, 10))
    assert int(second[7]) > 0
    assert ref != dut
    # Both of one sign here: the distance of the bits is the distance in ULP.
    assert (ref ^ dut) < 1 << 31
    assert int(second[11]) == abs(ref - dut)


def test_green_console_shows_what_was_compared() -> None:
    result = run_cli("isodiff", "--m", "2", "--pos", "5:6", "--engine", "emu", "--model", "moe-48")
    lines = result.stdout.splitlines()
    assert lines[4] == "SAME  M = 2: 4 of 4 columns, 2,120 of 2,120 keys, emulated"
    assert "  logits   0 of 4,012 differ, as uint32" in lines
    assert "  state    lengths, KV rows, scales equal; 8 further steps equal" in lines
    path = next(line for line in lines if line.startswith("  path"))
    rows, singles = map(int, re.findall(r"(\d+) (?:calls )?for", path.replace(",", "")))
    assert rows < singles
    assert rows * 2 == singles
    assert any(re.match(r"  speed    M = 2: \d+\.\d\d m?s one forward", line) for line in lines)
    assert max(map(len, lines[4:])) <= 80


def test_quiet_is_one_line() -> None:
    result = run_cli("isodiff", "--m", "2..4", "--pos", "3:4", "-q")
    assert result.stdout == "same: M 2..4, 18 of 18 columns, state equal, control fired\n"
    engine = "tests.red.row_faults:OnCpu@fault=key_too_few"
    result = run_cli("isodiff", "--m", "2..4", "--pos", "3", "--engine", engine, "-q")
    assert result.stdout == "diverged: M 2, pos 3, col 1, t4_l0_attn, born here\n"
    assert result.status == 1


def test_json_has_the_costs_op_by_op(tmp_path: Path) -> None:
    path = tmp_path / "isodiff.json"
    engine = "emu@fuse=off"
    run_cli("isodiff", "--m", "2,4", "--pos", "3", "--engine", engine, "--json", str(path))
    body = json.loads(path.read_text())
    assert (body["format"], body["version"], body["verdict"]) == ("parity-probe", 5, "same")
    two, four = (Cost(**cost) for cost in body["costs"])
    assert (two.m, four.m) == (2, 4)
    # Rows have their own projection kernels: not one launch of the single-row kernel.
    assert "q4_matvec" not in four.rows_calls
    assert four.rows_calls["q4_matvec_rows"] == two.rows_calls["q4_matvec_rows"]
    assert four.single_calls["q4_matvec"] == 4 * four.rows_calls["q4_matvec_rows"]
    assert four.rows_seconds > 0
    assert body["compared"] == 6 * 46


def test_one_row_alone_is_not_run() -> None:
    found = run_probe(Isodiff, "cpu", ask_for("moe-tiny", (1,)))
    assert found.verdict is Verdict.NOT_RUN
    assert "nothing was batched" in found.headline
    assert_same(run_probe(Isodiff, "cpu", ask_for("moe-tiny", (1, 2))), 3)


def test_more_rows_than_the_engine_has_are_refused() -> None:
    result = run_cli("isodiff", "--m", "65", "--pos", "0")
    assert result.status == 2
    assert "65 rows in one forward: 1 to 64 are possible" in result.stderr
    assert "next: give a smaller --m" in result.stderr


@pytest.mark.parametrize(
    ("typed", "failing", "wanted"),
    [
        ("isodiff --m 2..8", "--m 4 --pos 5:5 --seed 7", "isodiff --m 4 --pos 5:5 --seed 7"),
        ("isodiff --seeds 3 --m=2 -q --json 'a b'", "--m 2", "isodiff --m 2"),
        ("isodiff --seed=1 --engine x@k=v --json=f", "--seed 9", "isodiff --engine x@k=v --seed 9"),
        ("rollback --quiet", "", "rollback"),
    ],
)
def test_reproduce_line(typed: str, failing: str, wanted: str) -> None:
    assert reproducing(f"parity {typed}", failing) == f"parity {wanted}"
