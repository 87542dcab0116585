"""parity ladder: greedy tokens of each rung, the first flip, the first key, and who decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parity.cli.commands import NEAR_TIE_SEED
from parity.runs.ladder import RUNGS, first_flip
from tests.cli_runner import Result, run_cli

SHORT = ("--model", "moe-tiny", "--seed", "7", "--n", "12")  # fast flips the token chosen at t42
KEYS = 46 * (32 + 12)


def climb(tmp_path: Path, *words: str) -> tuple[Result, dict[str, Any]]:
    """``parity ladder WORDS`` and its JSON."""
    path = tmp_path / "ladder.json"
    result = run_cli("ladder", *SHORT, *words, "--json", str(path))
    assert path.exists(), result.stderr
    return result, json.loads(path.read_text())


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, dict[str, Any]]:
    return climb(tmp_path_factory.mktemp("ladder"))


def rung(body: dict[str, Any], name: str) -> dict[str, Any]:
    """One rung of the JSON form."""
    return next(row for row in body["rungs"] if row["name"] == name)


def test_exact_rung_has_every_key_and_token(clean: tuple[Result, dict[str, Any]]) -> None:
    result, body = clean
    assert (result.status, body["status"]) == (0, 0)
    assert (body["format"], body["version"]) == ("parity-ladder", 1)
    assert [row["name"] for row in body["rungs"]] == list(RUNGS)
    exact = rung(body, "exact")
    assert exact["tokens"] == {"equal": 12, "fed_equal": 12, "total": 12}
    assert exact["keys"] == {"same": KEYS, "differ": 0, "total": KEYS}
    assert (exact["flip"], exact["first"]) == (None, None)
    assert exact["control"]["fired"] is True
    headline = f"SAME  exact: {KEYS:,} of {KEYS:,} keys equal, 12 of 12 tokens"
    assert result.stdout.splitlines()[0] == headline


def test_fast_flips_where_its_own_run_does(clean: tuple[Result, dict[str, Any]]) -> None:
    _, body = clean
    fast = rung(body, "fast")
    assert fast["flip"]["pos"] == 42
    assert fast["flip"]["ref"] != fast["flip"]["dut"]
    # t32 to t41 are the ref's; t43 is not, even fed the ref's tokens.
    assert fast["tokens"]["equal"] == 10
    assert fast["tokens"]["fed_equal"] == 10
    assert fast["first"] == "t0_l0_nrm"
    assert fast["keys"]["differ"] > 1000
    assert set(fast["dut"]["variants"].split(",")) > {"fma", "rsqrt"}


def test_table_fits_80_columns_and_says_how_to_repeat(
    clean: tuple[Result, dict[str, Any]],
) -> None:
    result, body = clean
    *lines, reproduce = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[2:7]] == ["rung", *RUNGS]
    assert reproduce.strip() == body["reproduce"]
    assert body["reproduce"].startswith("parity ladder --model moe-tiny")
    assert result.stderr == ""


def test_json_on_stdout_stands_alone() -> None:
    result = run_cli("ladder", *SHORT[:-1], "2", "--json", "-")
    assert json.loads(result.stdout)["status"] == result.status == 0


def test_emulated_rungs_are_labelled(tmp_path: Path, clean: tuple[Result, dict[str, Any]]) -> None:
    result, body = climb(tmp_path, "--engine", "emu")
    assert result.status == 0
    assert "stand-ins: not a GPU's bits" in result.stdout
    assert "stand-ins" not in clean[0].stdout
    # The stand-ins are the CPU's own functions.
    compared = ("name", "tokens", "flip", "first", "keys")
    rows = [[row[name] for name in compared] for row in body["rungs"]]
    assert rows == [[row[name] for name in compared] for row in clean[1]["rungs"]]


# --- what the exact rung must not pass ------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "status", "verdict", "headline"),
    [
        ("faults:FlippedWeight", 1, "diverged", "DIVERGED  exact: first at t0_l2_qrope"),
        ("faults:UnusedWeight", 1, "diverged", "DIVERGED  exact: weights differ in 1 tensor"),
        ("variant_engines:Wandering", 1, "same", "DIVERGED  exact: another token at t32"),
        ("variant_engines:Unmoved", 3, "not_run", "NOT RUN  exact: the control did not fire"),
    ],
    ids=["weight", "unused weight", "tap", "control"],
)
def test_red_exact_rung(
    tmp_path: Path, engine: str, status: int, verdict: str, headline: str
) -> None:
    result, body = climb(tmp_path, "--engine", f"tests.red.{engine}")
    assert (result.status, body["status"]) == (status, status)
    assert rung(body, "exact")["verdict"] == verdict
    assert result.stdout.splitlines()[0].startswith(headline)


def test_red_engine_that_ignores_its_variants_has_no_other_rungs(tmp_path: Path) -> None:
    _, body = climb(tmp_path, "--engine", "tests.red.variant_engines:Deaf")
    assert [row["keys"]["differ"] for row in body["rungs"]] == [0, 0, 0, 0]


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "cpu:fast"], "--engine cpu:fast: the ladder sets tier and variants itself"),
        (["--engine", "cpu+fma"], "--engine cpu+fma: the ladder sets tier and variants itself"),
        (["--engine", "run.dump"], "--engine run.dump: not an engine"),
        (["--ref", "run.dump"], "--ref run.dump: not an engine"),
        (["--engine", "cpuu"], "'cpuu' is no engine, no dump file and no program"),
        (["--n", "0"], "--n 0: nothing to decode"),
        (["--model", "moe-49"], "unknown model 'moe-49'"),
        (["--json", "no/such/folder/ladder.json"], "no/such/folder/ladder.json: cannot be written"),
    ],
)
def test_refused_in_one_line_before_anything_runs(words: list[str], said: str) -> None:
    result = run_cli("ladder", *words)
    assert (result.status, result.stdout) == (2, "")
    first, next_step = result.stderr.splitlines()
    assert first.startswith(f"parity: {said}")
    assert next_step.startswith("  next: ")


def test_engine_options_stay_behind_the_tier() -> None:
    result = run_cli("ladder", *SHORT[:-1], "1", "--engine", "emu@shuffled=3", "--json", "-")
    assert (result.status, json.loads(result.stdout)["status"]) == (0, 0)


@pytest.mark.parametrize(
    ("ref", "dut", "flip"),
    [
        ({1: 5, 2: 6}, {1: 5, 2: 6}, None),
        ({1: 5, 2: 6}, {2: 7, 1: 5}, (2, 6, 7)),
        ({1: 5, 2: 6}, {1: 8, 2: 7}, (1, 5, 8)),
        ({1: 5}, {2: 7}, None),
    ],
)
def test_first_flip(
    ref: dict[int, int], dut: dict[int, int], flip: tuple[int, int, int] | None
) -> None:
    assert first_flip(ref, dut) == flip


def test_default_seed_is_the_one_in_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ladder.md").read_text(encoding="utf-8")
    assert f"moe-48 seed {NEAR_TIE_SEED}," in page
