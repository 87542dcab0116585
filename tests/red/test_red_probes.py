"""Faults planted in rows, mark, rollback and chunks: verdict, status, smallest M, first key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.runs.probe import Cost
from parity_cuda.emu import EmuModule, Schedule, build_module, sanitizer_env
from parity_cuda.sources import kernel_sources
from parity_probes import blocks
from tests.cli_runner import run_cli
from tests.red import row_faults

FAULTS = "tests.red.row_faults"
ASAN_STATUS = 1


@dataclass(frozen=True)
class Ran:
    """What one command gave: the exit status, stdout, and the JSON it wrote."""

    status: int
    stdout: str
    found: dict[str, Any]

    @property
    def facts(self) -> dict[str, str]:
        return dict(self.found["facts"])


def run(tmp_path: Path, command: str, engine: str, *words: str, module: str = FAULTS) -> Ran:
    path = tmp_path / "found.json"
    result = run_cli(command, "--engine", f"{module}:{engine}", "--json", str(path), *words)
    assert path.exists(), result.stderr
    return Ran(result.status, result.stdout, json.loads(path.read_text()))


def isodiff(tmp_path: Path, engine: str, *words: str) -> Ran:
    return run(tmp_path, "isodiff", engine, "--pos", "5", *words)


def rollback(tmp_path: Path, engine: str, *words: str) -> Ran:
    words = ("--pos", "5", "--m", "2,3", *words)
    return run(tmp_path, "rollback", engine, *words, module="tests.red.rollback_faults")


# --- isodiff --------------------------------------------------------------------------------------

MOE, HYBRID = ("--model", "moe-tiny"), ("--model", "hybrid-tiny")
ROWS = [
    # fault, model, smallest M that fails, first column, first key, the op behind it
    ("split_by_rows", MOE, 5, 0, "t5_l0_kraw", "K projection"),
    ("split_by_rows", HYBRID, 5, 0, "t5_l0_qkv", "QKV projection"),
    ("key_too_many", MOE, 2, 1, "t6_l0_attn", "attention"),
    ("key_too_few", MOE, 2, 1, "t6_l0_attn", "attention"),
    ("key_too_many", HYBRID, 2, 1, "t6_l3_attn", "attention"),
    ("key_too_few", HYBRID, 2, 1, "t6_l3_attn", "attention"),
    ("shared_scratch", MOE, 2, 1, "t6_l0_attn", "attention"),
    ("late_row", MOE, 2, 1, "t6_l0_k", "RoPE and storage of K"),
    ("rope_at_first", MOE, 2, 1, "t6_l0_k", "RoPE and storage of K"),
    ("rope_at_first", HYBRID, 2, 1, "t6_l3_k", "RoPE and storage of K"),
    ("hist_stuck", HYBRID, 2, 1, "t5_l0_hist", "history of the convolution"),
    ("state_twice", HYBRID, 2, 1, "t6_l0_o", "delta rule"),
]


@pytest.mark.parametrize("engine", ["OnCpu", "OnEmu"])
@pytest.mark.parametrize(("fault", "model", "smallest", "column", "key", "op"), ROWS)
def test_wrong_row_is_found_at_its_key(
    tmp_path: Path,
    fault: str,
    model: tuple[str, str],
    smallest: int,
    column: int,
    key: str,
    op: str,
    engine: str,
) -> None:
    ran = isodiff(tmp_path, f"{engine}@fault={fault}", "--m", "6", *model)
    assert (ran.status, ran.found["verdict"], ran.found["first"]) == (1, "diverged", key)
    start = f"M = {smallest}, pos 5, col {column}; first key {key}, born here"
    assert ran.found["headline"].removesuffix(", emulated") == start
    assert ran.found["headline"].endswith(", emulated") == (engine.endswith("OnEmu"))
    row = int(key[1]) - 5
    assert ran.facts["cause"].startswith(f"{op} (contract ")
    assert f", row {row} of {smallest}; every key before it is equal" in ran.facts["cause"]
    equal = " (2..4 equal)" if smallest == 5 else ""
    assert f"smallest failing M: {smallest}{equal}" in ran.facts["columns"]
    assert ran.stdout.splitlines()[-2].endswith(f"--m {smallest} --pos 5:5 --seed 7")


@pytest.mark.parametrize("engine", ["OnCpu", "OnEmu"])
def test_the_same_engines_without_a_fault_are_same(tmp_path: Path, engine: str) -> None:
    for model in (MOE, HYBRID):
        ran = isodiff(tmp_path, f"{engine}@fault=none", "--m", "6", *model)
        assert (ran.status, ran.found["verdict"]) == (0, "same")


def test_smallest_m_among_those_asked_for(tmp_path: Path) -> None:
    ran = isodiff(tmp_path, "OnCpu@fault=split_by_rows", "--m", "2..8")
    assert ran.found["headline"].startswith("M = 5, pos 5, col 0;")
    assert "smallest failing M: 5 (2..4 equal)" in ran.facts["columns"]
    assert len(ran.found["lines"]) == 35
    red = [line for line in ran.found["lines"] if not line.endswith("ndiff=0")]
    assert len(red) == 5 + 6 + 7 + 8


def test_first_start_that_fails_is_named(tmp_path: Path) -> None:
    ran = run(tmp_path, "isodiff", "OnCpu@fault=rope_at_first", "--m", "3", "--pos", "0:2")
    assert ran.found["first"] == "t1_l0_k"
    assert ran.found["failing"] == "--m 2 --pos 0:0 --seed 7"


def test_only_the_failing_seed_is_in_the_reproduce_line(tmp_path: Path) -> None:
    ran = isodiff(tmp_path, "OnCpu@fault=key_too_few", "--m", "2", "--seed", "4", "--seeds", "3")
    assert ran.found["failing"] == "--m 2 --pos 5:5 --seed 4"
    command = ran.stdout.splitlines()[-2]
    assert "--seeds" not in command
    assert command.count("--seed") == 1


def test_reading_past_the_length_is_pointed_out(tmp_path: Path) -> None:
    """The last row's extra key is one that nobody wrote."""
    ran = isodiff(tmp_path, "OnCpu@fault=key_too_many", "--m", "2")
    assert "KV rows past the length" in ran.facts["cause"]
    ran = isodiff(tmp_path, "OnCpu@fault=key_too_few", "--m", "2")
    assert "KV rows past the length" not in ran.facts["cause"]


def test_rows_written_elsewhere_are_seen_because_the_cache_holds_garbage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the rows that the single steps left, the same fault passes at M = 2: row 6 is there."""
    words = ("OnCpu@fault=late_row", "--m", "2")
    assert isodiff(tmp_path, *words).found["first"] == "t6_l0_k"
    monkeypatch.setattr(blocks, "garbage", lambda array: array)
    monkeypatch.setattr(blocks, "_filled", lambda state, positions, fill: state)
    assert isodiff(tmp_path, *words).found["verdict"] == "same"


def test_single_steps_behind_step_rows_are_not_run(tmp_path: Path) -> None:
    ran = isodiff(tmp_path, "Loops", "--m", "2..4")
    assert (ran.status, ran.found["verdict"]) == (3, "not_run")
    assert ran.stdout.splitlines()[9].startswith("NOT RUN  M = 2..4: as many calls as single steps")
    assert all(not Cost(**cost).batched for cost in ran.found["costs"])
    assert "attention_int8" in ran.facts["path"]


GIVEN = [
    # engine, first key, headline, facts
    ("StaleLogits", None, "M = 2, pos 5, col 1; the keys are equal, the logits returned are not"),
    ("LostStep", "t6_l0_nrm", "M = 2, pos 5, col 1; first key t6_l0_nrm, missing in the rows"),
    ("LateKv", None, "M = 2, pos 5; state differs, first at l3_v row 6 (position 6)"),
    ("Hidden", "t8_l2_x", "M = 2, pos 5; a further step differs, first key t8_l2_x"),
    (
        *("ShortHash", None),
        "M = 2, pos 5, col 1; the logits of rows without a tap differ from single steps with one",
    ),
]


@pytest.mark.parametrize(("engine", "key", "headline"), GIVEN)
def test_what_rows_give_and_leave_is_compared(
    tmp_path: Path, engine: str, key: str | None, headline: str
) -> None:
    ran = isodiff(tmp_path, engine, "--m", "3")
    assert (ran.status, ran.found["verdict"], ran.found["first"]) == (1, "diverged", key)
    assert ran.found["headline"] == headline


def test_differing_state_is_told_by_part_layer_and_position(tmp_path: Path) -> None:
    ran = isodiff(tmp_path, "LateKv", "--m", "2")
    text = "KV rows differ from layer 3 on, position 6; lengths, scales equal"
    assert ran.facts["state"] == text
    assert ran.facts["columns"] == "0 of 2 differ; smallest failing M: 2"


@pytest.mark.parametrize("engine", ["Shaky", "Drifting"])
def test_rows_that_differ_from_themselves_are_unstable(tmp_path: Path, engine: str) -> None:
    ran = isodiff(tmp_path, engine, "--m", "4")
    assert (ran.status, ran.found["verdict"]) == (1, "unstable")
    assert "run" in ran.found["brief"]


def test_not_finite_on_both_sides_is_not_run(tmp_path: Path) -> None:
    ran = isodiff(tmp_path, "NotFinite", "--m", "2")
    assert (ran.status, ran.found["verdict"]) == (3, "not_run")
    assert "not finite with the same bytes: t5_final_normed" in ran.found["headline"]


def test_control_that_does_not_fire_is_not_run(tmp_path: Path) -> None:
    ran = isodiff(tmp_path, "DeadTap", "--m", "2")
    assert (ran.status, ran.found["verdict"]) == (3, "not_run")
    assert ran.found["headline"].startswith("the control did not fire: ")


# --- capabilities ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "engine", "text"),
    [
        ("isodiff", "NoRows", "lacks the capabilities 'rows', 'counters', needed for isodiff"),
        ("rollback", "NoRows", "lacks the capabilities 'rows', 'rollback', needed for rollback"),
        ("rollback", "NoRollback", "lacks the capability 'rollback', needed for rollback"),
    ],
)
def test_missing_capability_is_not_run_and_named(
    tmp_path: Path, command: str, engine: str, text: str
) -> None:
    ran = run(tmp_path, command, engine)
    assert (ran.status, ran.found["verdict"]) == (3, "not_run")
    assert ran.stdout.splitlines()[0] == f"NOT RUN  {FAULTS}:{engine} {text}"
    assert run_cli(command, "--engine", f"{FAULTS}:{engine}", "-q").stdout == (
        f"not run: {FAULTS}:{engine} {text}\n"
    )


def test_an_engine_without_rows_still_diffs_and_has_chunks(tmp_path: Path) -> None:
    result = run_cli("diff", "--ref", "cpu", "--dut", f"{FAULTS}:NoRows", "--n", "1", "-q")
    assert result.status == 0
    ran = run(tmp_path, "isodiff", "NoRows", "--chunks", "7")
    assert (ran.status, ran.facts["path"]) == (0, "fed by prefill")


def test_a_difference_is_worse_than_what_could_not_run(tmp_path: Path) -> None:
    """isodiff --rb on an engine that is wrong and lacks rollback: 1, not 3, and both are told."""
    path = tmp_path / "both.json"
    engine = f"{FAULTS}:WrongNoRollback"
    words = ("--m", "2", "--pos", "5", "--rb", "--json", str(path))
    assert run_cli("isodiff", "--engine", engine, *words).status == 1
    found = json.loads(path.read_text())
    assert [one["verdict"] for one in found] == ["diverged", "not_run"]


def test_without_injection_the_control_is_at_dump_level(tmp_path: Path) -> None:
    ran = isodiff(tmp_path, "NoInject", "--m", "2")
    assert (ran.status, ran.found["verdict"]) == (0, "same")
    assert ran.facts["control"].startswith("fired: dump level: one digit of t")


# --- mark and rollback ----------------------------------------------------------------------------

BACK = [
    # engine, headline, controls of the table that must be red for M = 2
    ("SkipsS", "M = 2, accept 0: s of layer 0 (and 5 more) was not restored", "S"),
    ("SkipsHist", "M = 2, accept 0: hist of layer 0 (and 5 more) was not restored", "hist"),
    ("SkipsLast", "M = 2, accept 0: s of layer 6 (and 1 more) was not restored", "S"),
    ("SkipsElement", "M = 2, accept 0: s of layer 1 was not restored", "S"),
    ("KeepsLength", "M = 2, accept 0: lengths (and 4 more) was not restored", "lengths"),
    ("SpoilsKv", "M = 2, accept 0: k of layer 7 was not restored", "KV rows"),
    ("Aliases", "M = 2, accept 0: s of layer 0 (and 11 more) was not restored", "hist"),
]
RULES = [
    ("RestoresTwice", "a second rollback: was not refused"),
    ("FirstMark", "a second mark replaces the first: state differs, first at lengths"),
    ("OutlivesReset", "rollback after a reset: was not refused"),
    ("Silent", "rollback without a mark: was not refused"),
    ("Cuts", "rollback without a mark: state differs, first at lengths"),
    ("NotAtZero", "a mark at position 0: was refused: nothing to mark yet"),
    ("OnceCopied", "M = 2, from position 0: first key t0_l0_conv"),
]


@pytest.mark.parametrize(("engine", "headline", "column"), BACK)
def test_what_is_not_restored_is_named(
    tmp_path: Path, engine: str, headline: str, column: str
) -> None:
    ran = rollback(tmp_path, engine, *HYBRID)
    assert (ran.status, ran.found["verdict"]) == (1, "diverged")
    assert ran.found["headline"] == headline
    assert ran.found["failing"] == "--m 2 --seed 7"
    heads, row = ran.found["table"][:2]
    assert row[heads.index(column) :].startswith("DIFF")


def test_first_key_after_a_part_was_not_restored(tmp_path: Path) -> None:
    """The state differs before any key does; the first key says where it is first used."""
    assert rollback(tmp_path, "SkipsLast", *HYBRID).found["first"] == "t5_l6_conv"
    assert rollback(tmp_path, "SkipsS", *HYBRID).found["first"] == "t5_l0_o"


@pytest.mark.parametrize(("engine", "headline"), RULES)
def test_broken_rule_is_named(tmp_path: Path, engine: str, headline: str) -> None:
    ran = rollback(tmp_path, engine, *HYBRID)
    assert (ran.status, ran.found["verdict"]) == (1, "diverged")
    assert ran.found["headline"] == headline


def test_rollback_that_nothing_could_spoil_is_not_run(tmp_path: Path) -> None:
    ran = rollback(tmp_path, "Inert", *HYBRID)
    assert (ran.status, ran.found["verdict"]) == (3, "not_run")
    assert ran.found["headline"].startswith("control 'no S' was not red")


# --- chunks ---------------------------------------------------------------------------------------


def test_chunk_that_changes_a_bit_is_found(tmp_path: Path) -> None:
    ran = run(tmp_path, "isodiff", "LongChunk", "--chunks", "2,7,16")
    assert (ran.status, ran.found["first"]) == (1, "t2_l1_v")
    assert ran.found["headline"] == "chunks of 7, fed by prefill: first key t2_l1_v"
    assert ran.facts["cause"].startswith("V projection and storage")
    assert ran.stdout.splitlines()[-2].endswith("--chunks 7 --seed 7")


def test_chunk_of_wrong_rows_is_told_apart_from_prefill(tmp_path: Path) -> None:
    ran = run(tmp_path, "isodiff", "OnCpu@fault=rope_at_first", "--chunks", "7")
    assert ran.found["headline"] == "chunks of 7, fed by rows: first key t1_l0_k"


# --- shared memory --------------------------------------------------------------------------------


def test_shared_memory_laid_out_for_the_first_row_is_found(tmp_path: Path) -> None:
    clean = isodiff(tmp_path, "ScoresInShared@fault=none", "--m", "4")
    assert (clean.status, clean.found["verdict"]) == (0, "same")
    ran = isodiff(tmp_path, "ScoresInShared@fault=overlap", "--m", "4")
    assert (ran.status, ran.found["first"]) == (1, "t6_l0_attn")


def launch_in_shared(floats: int) -> None:
    """attention_in_shared.cu for 4 rows at position 5, with shared memory for ``floats`` floats."""
    text = {row_faults.SHARED.name: row_faults.SHARED.read_text()}
    headers = {name: text for name, text in kernel_sources().items() if name.endswith(".cuh")}
    module = EmuModule(build_module({**headers, **text}, mode="asan"))
    rows, heads, kv, hd, pos = 4, 4, 2, 8, 5
    q, cache = np.ones((rows, heads, hd), np.int8), np.ones((pos + rows, kv, hd), np.int8)
    scale, scales = np.ones((rows, heads), np.float32), np.ones((pos + rows, kv), np.float32)
    out = np.zeros((rows, heads, hd), np.float32)
    sizes = [np.int32(size) for size in (0, kv, hd)]
    last = [np.float32(1), np.array([pos], np.int32), *sizes]
    args = [out, q, scale, cache, scales, cache, scales, *last]
    grid, schedule = (heads, rows), Schedule("ascending")
    module.launch("attention_in_shared", grid, (1,), args, 4 * floats, schedule=schedule)


def test_shared_memory_for_the_keys_of_the_first_row_is_refused() -> None:
    """Keys 5 + 1 of row 0 and hd = 8 accumulators, where row 3 needs 5 + 4 of the first."""
    code = f"from {__name__} import launch_in_shared; launch_in_shared"
    env = {**os.environ, **sanitizer_env("asan"), "PYTHONPATH": os.pathsep.join(sys.path)}
    status, said = {}, {}
    for floats in (5 + 1 + 8, 5 + 4 + 8):
        command = [sys.executable, "-c", f"{code}({floats})"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        status[floats], said[floats] = done.returncode, done.stderr
    assert status == {14: ASAN_STATUS, 17: 0}, said
    assert "heap-buffer-overflow" in said[14]
    assert "attention_in_shared.cu" in said[14]
