"""parity mathfn on the command line: what it prints, its exit statuses and its refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from parity.elementary.mathfn import read_result
from parity_probes import mathfn_table
from parity_probes.mathfn_table import COMPARISONS
from tests.cli_runner import Result, run_cli
from tests.reports import html_page

FAULTS = "tests.red.function_faults"
SHORT = ("--n", "2000", "--no-positions")


def mathfn(*words: str) -> Result:
    return run_cli("mathfn", *words)


def facts(result: Result) -> dict[str, str]:
    """Label to text of the labelled lines."""
    lines = (line.split(maxsplit=1) for line in result.stdout.splitlines() if line[:2] == "  ")
    return {words[0]: words[1] for words in lines if len(words) == 2}


# --- what it prints -------------------------------------------------------------------------------


def test_two_that_differ() -> None:
    result = mathfn("expf", "--ref", "ucrt", "--dut", "numpy", "--n", "2000")
    assert result.status == 1
    first = result.stdout.splitlines()[0]
    assert first.startswith("DIVERGED  expf: ")
    assert " of 2,000 inputs differ (" in first
    assert facts(result)["results"] == "subnormal 243, normal 1,757, the same on both sides"
    assert "samples drawn uniformly from -100 to 0, seed 7" in result.stdout
    assert "10,001 inputs alone, in slices, strided, backwards: the same bits" in result.stdout
    lines = result.stdout.splitlines()
    at = lines.index("  reproduce:")
    assert lines[at + 1] == "  parity mathfn expf --ref ucrt --dut numpy --n 2000"
    assert max(map(len, lines)) <= 80
    assert result.stderr == ""


def test_bins_add_up_to_the_total() -> None:
    result = mathfn("cosf", "--dut", "libm", *SHORT, "--json", "-")
    found = read_result(result.stdout, "stdout")
    assert found is not None
    assert result.status == 1
    assert sum(one.count for one in found.bins) == found.pairs == 2000  # type: ignore[union-attr]


def test_two_names_for_one_function() -> None:
    result = mathfn("silu", "--ref", "ucrt", "--dut", f"{FAULTS}:expf", *SHORT, "--no-special")
    assert result.status == 1
    same = mathfn("expf", "--ref", "ucrt", "--dut", f"{FAULTS}:expf", *SHORT)
    assert same.status == 0
    assert same.stdout.startswith("SAME  expf: 0 of 2,000 inputs differ\n")
    assert f"ucrt and {FAULTS}:expf may be one implementation" in same.stdout
    itself = mathfn("expf", "--dut", "ucrt", *SHORT)
    assert "one implementation" not in itself.stdout


def test_special_values_alone_make_it_differ() -> None:
    """Of three planted inputs two are special values; no sample is any of the three."""
    result = mathfn("expf", "--dut", f"{FAULTS}:three_inputs", *SHORT)
    assert result.status == 1
    head = "DIVERGED  expf: 0 of 2,000 inputs differ; 3 of 95 special values do"
    assert result.stdout.splitlines()[0] == head
    assert mathfn("expf", "--dut", f"{FAULTS}:three_inputs", *SHORT, "--no-special").status == 0


def test_a_result_that_depends_on_its_place() -> None:
    result = mathfn("expf", "--dut", f"{FAULTS}:by_place", "--n", "2000")
    assert result.status == 1
    head = f"UNSTABLE  expf: dut {FAULTS}:by_place depends on where an input sits"
    assert result.stdout.splitlines()[0] == head
    text = " ".join(result.stdout.split())
    assert "other results of dut, first " in text
    assert " in the array, " in text


def test_a_result_that_does_not_repeat() -> None:
    result = mathfn("expf", "--dut", f"{FAULTS}:flaky", "--n", "2000")
    assert result.status == 1
    head = f"UNSTABLE  expf: dut {FAULTS}:flaky is not repeatable"
    assert result.stdout.splitlines()[0] == head
    text = " ".join(result.stdout.split())
    assert "places not repeatable: the same input in the same place, " in text
    assert "depends on where" not in text
    assert "in the array" not in text


@pytest.mark.parametrize(
    ("words", "said", "step"),
    [
        (
            ("--n", "2000000"),
            "not enough memory for --n 2,000,000: about 48 MB are needed",
            "a smaller --n, or --exhaustive",
        ),
        (("--exhaustive",), "not enough memory for a chunk of inputs", "a smaller --chunk"),
    ],
)
@pytest.mark.usefixtures("few")
def test_red_too_little_memory(words: tuple[str, ...], said: str, step: str) -> None:
    result = mathfn("expf", "--dut", f"{FAULTS}:no_memory", *words)
    assert result.status == 2
    lines = result.stderr.splitlines()
    assert lines[0] == f"parity: {said}"
    assert lines[1].startswith(f"  next: {step}")
    assert len(lines) == 2
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--dut", "ucrt"), "same: expf: 0 of 2,000 inputs differ\n"),
        (
            ("--dut", f"{FAULTS}:three_inputs"),
            "diverged: expf: 0 of 2,000 inputs differ; 3 of 95 special values do\n",
        ),
    ],
)
def test_quiet(words: tuple[str, ...], line: str) -> None:
    assert mathfn("expf", *words, *SHORT, "-q").stdout == line


def test_domain_and_seed() -> None:
    words = ("logf", "--dut", "libm", "--domain", "0.5:2", "--n", "3000", "--no-positions")
    one, other = (mathfn(*words, "--seed", seed, "--json", "-").stdout for seed in ("1", "2"))
    found = json.loads(one)
    assert found["inputs"] == {
        "samples": "3,000",
        "drawn": "uniformly from 0.5 to 2",
        "seed": "1",
    }
    assert {one["exponent"] for one in found["exponents"]} <= {126, 127}
    assert found["examples"] != json.loads(other)["examples"]


# --- reports --------------------------------------------------------------------------------------


def test_reports_hold_the_same_and_can_be_made_again(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("r.json", "r.html")]
    result = mathfn("sinf", "--dut", "numpy", *SHORT, "--json", paths[0], "--html", paths[1])
    assert result.status == 1
    again = run_cli("report", paths[0])
    assert (again.status, again.stdout) == (1, result.stdout)
    page = Path(paths[1]).read_text()
    assert html_page.problems(page) == []
    other = str(tmp_path / "again.html")
    assert run_cli("report", paths[0], "--format", "html", "-o", other).status == 1
    assert Path(other).read_text() == page
    same = run_cli("report", paths[0], "--format", "json")
    assert same.stdout == Path(paths[0]).read_text()
    assert run_cli("report", paths[0], "-q").stdout.startswith("diverged: sinf: ")


def test_red_a_damaged_result(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    mathfn("sinf", "--dut", "ucrt", *SHORT, "--json", str(path))
    text = path.read_text()
    path.write_text(text.replace('"bins"', '"bin"'))
    damaged = run_cli("report", str(path))
    assert damaged.status == 2
    assert damaged.stderr.startswith(f"parity: {path}: damaged: ")
    path.write_text(text.replace('"version": 1', '"version": 9'))
    assert "version 9 of parity-mathfn, this parity reads 1" in run_cli("report", str(path)).stderr
    path.write_text(text)
    assert run_cli("report", str(path), "--format", "junit").status == 2


def test_one_file_for_two_reports_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "r")
    result = mathfn("sinf", "--dut", "ucrt", *SHORT, "--json", path, "--html", path)
    assert result.status == 2
    assert "already taken by another report" in result.stderr


# --- every float ----------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """``--exhaustive`` over 20,000 bit patterns instead of all."""
    from parity.elementary import mathfn as core

    class Few(core.Ask):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **{**options, "span": (0x3F7FF000, 0x3F7FF000 + 20_000)})  # type: ignore[arg-type]

    monkeypatch.setattr(core, "Ask", Few)


@pytest.mark.usefixtures("few")
def test_a_sweep_stopped_and_gone_on(tmp_path: Path) -> None:
    state, one, two = (str(tmp_path / name) for name in ("s.json", "1.json", "2.json"))
    words = ("expf", "--dut", "tests.cli.test_cli_mathfn:stopping", "--exhaustive")
    options = ("--chunk", "3000", "--state", state)
    stopping.calls = 4  # type: ignore[attr-defined]
    stopped = mathfn(*words, *options, "--json", one)
    assert stopped.status == 2
    lines = stopped.stderr.splitlines()
    done = "stopped: 9,000 of 20,000 inputs done, up to 3f801327; kept in"
    assert lines[0] == f"parity: {done} {state}"
    assert lines[1] == f"  next: go on: parity mathfn {' '.join(words)} {' '.join(options)} " + (
        f"--json {one}"
    )
    assert not Path(one).exists()
    assert mathfn(*words, *options, "--json", one).status == 1
    assert not Path(state).exists()
    assert mathfn(*words, "--json", two).status == 1
    left, right = (json.loads(Path(path).read_text()) for path in (one, two))
    for found in (left, right):
        found.pop("seconds")
    assert json.dumps(left) == json.dumps(right)
    assert left["pairs"] == 20_000


def stopping(x: np.ndarray) -> np.ndarray:
    """The argument itself; Ctrl-C is pressed in the call that ``calls`` counts down to."""
    import signal

    stopping.calls -= 1  # type: ignore[attr-defined]
    if stopping.calls == 0:  # type: ignore[attr-defined]
        signal.raise_signal(signal.SIGINT)
    return x


@pytest.mark.usefixtures("few")
def test_a_state_of_another_sweep_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "s.json"
    state.write_text("{}")
    result = mathfn("expf", "--dut", "libm", "--exhaustive", "--state", str(state))
    assert result.status == 2
    assert result.stderr.startswith(f"parity: --state {state} is damaged: KeyError 'format'")


@pytest.mark.usefixtures("few")
def test_positions_are_checked_only_when_asked() -> None:
    plain = mathfn("expf", "--dut", "ucrt", "--exhaustive")
    asked = mathfn("expf", "--dut", "ucrt", "--exhaustive", "--positions")
    assert "backwards" not in plain.stdout
    assert "backwards" in asked.stdout


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cos", "--dut", "ucrt"), "no function 'cos'\n  next: did you mean cosf?"),
        (("zzz", "--dut", "ucrt"), "no function 'zzz'\n  next: known: expf, cosf"),
        ((), "give a function (expf, cosf,"),
        (("expf",), "give --dut"),
        (("expf", "--dut", "ucrtt"), "no implementation 'ucrtt'\n  next: did you mean ucrt?"),
        (("cosf", "--dut", "exp_via_double"), "does not offer 'cosf'"),
        (("expf", "--dut", "ucrt", "--domain", "1"), "'1' is not two numbers lo:hi"),
        (("expf", "--dut", "ucrt", "--domain", "a:b"), "'a:b' is not two numbers lo:hi"),
        (("expf", "--dut", "ucrt", "--domain", "1:2:3"), "'1:2:3' is not two numbers lo:hi"),
        (("expf", "--dut", "ucrt", "--domain", "2:1"), "--domain 2:1: 2 is above 1"),
        (("expf", "--dut", "ucrt", "--domain", "nan:1"), "both ends must be finite"),
        (("expf", "--dut", "ucrt", "--domain", "0:inf"), "both ends must be finite"),
        (("expf", "--dut", "ucrt", "--domain", "0:1e39"), "beyond the largest float32"),
        (("expf", "--dut", "ucrt", "--n", "0"), "--n 0: not between 1 and"),
        (("expf", "--dut", "ucrt", "--n", "1000000000"), "--n 1000000000: not between"),
        (("expf", "--dut", "ucrt", "--n", "x"), "'x' is not a valid integer"),
        (("expf", "--dut", "ucrt", "--seed", "-1"), "--seed -1: below 0"),
        (("expf", "--dut", "ucrt", "--n", "5", "--exhaustive"), "--n with --exhaustive"),
        (("expf", "--dut", "ucrt", "--domain", "0:1", "--exhaustive"), "--domain with --exh"),
        (("expf", "--dut", "ucrt", "--chunk", "5"), "--chunk is for --exhaustive"),
        (("expf", "--dut", "ucrt", "--state", "f"), "--state is for --exhaustive"),
        (("expf", "--dut", "ucrt", "--exhaustive", "--chunk", "0"), "--chunk 0: not between"),
        (("expf", "--table"), "give it without expf"),
        (("--table", "--n", "5"), "give it without --n"),
        (("--table", "--exhaustive"), "give it without --exhaustive"),
        (("--table", "--no-positions"), "give it without --no-positions"),
        (("--table", "--no-special"), "give it without --no-special"),
        (("--table", "--dut", "libm"), "give it without --dut"),
        (("expf", "--dut", "ucrt", "--json", "/no/such/folder/f"), "cannot be written"),
    ],
)
def test_red_bad_input(words: tuple[str, ...], said: str) -> None:
    result = mathfn(*words)
    assert result.status == 2
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_an_implementation_that_cannot_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from parity_cuda import functions

    functions.open_backend.cache_clear()
    monkeypatch.setitem(sys.modules, "cupy", None)
    result = mathfn("expf", "--dut", "cuda")
    functions.open_backend.cache_clear()
    assert result.status == 3
    assert result.stderr.startswith("parity: not run: cuda: CuPy is not installed\n  next: ")


# --- the table ------------------------------------------------------------------------------------


@pytest.fixture
def short_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows of the table that need no device."""
    from dataclasses import replace

    from parity.elementary.mathfn import Expected

    row = next(one for one in COMPARISONS if one.dut == "exp_via_double")
    rows = (row, replace(row, dut="ucrt", expected=Expected("0", count=(0, 0))))
    monkeypatch.setattr(mathfn_table, "COMPARISONS", rows)


@pytest.mark.usefixtures("short_table")
def test_table(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("t.json", "t.html")]
    result = mathfn("--table", "--seed", "3", "--json", paths[0], "--html", paths[1])
    assert result.status == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "SAME  Kestrel's table: 2 of 2 rows run, 2 of 2 as expected"
    assert "  rerun    15 to 45, 1 ULP at most: inside" in lines
    assert "  seed     3" in lines
    assert lines[-1] == "  parity mathfn --table --seed 3"
    assert max(map(len, lines)) <= 80
    assert html_page.problems(Path(paths[1]).read_text()) == []
    again = run_cli("report", paths[0])
    assert (again.status, again.stdout) == (0, result.stdout)


def test_red_a_row_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    row = next(one for one in COMPARISONS if one.dut == "exp_via_double")
    wrong = replace(row, dut="libm")
    monkeypatch.setattr(mathfn_table, "COMPARISONS", (wrong,))
    result = mathfn("--table")
    assert result.status == 1
    assert result.stdout.startswith(
        "DIVERGED  Kestrel's table: 1 of 1 rows run, 0 of 1 as expected"
    )
    assert "  rerun    15 to 45, 1 ULP at most: OUTSIDE" in result.stdout
    quiet = mathfn("--table", "-q")
    assert quiet.stdout == "diverged: Kestrel's table: 1 of 1 rows run, 0 of 1 as expected\n"


def test_table_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from parity_cuda import functions

    functions.open_backend.cache_clear()
    monkeypatch.setitem(sys.modules, "cupy", None)
    result = mathfn("--table")
    functions.open_backend.cache_clear()
    assert result.status == 3
    assert result.stdout.startswith("NOT RUN  Kestrel's table: 1 of ")
    assert "  measured not run: cuda: CuPy is not installed" in result.stdout
    steps = [line for line in result.stdout.splitlines() if line.startswith("  next")]
    assert len(steps) == 1
    assert steps[0].startswith("  next     it takes an NVIDIA GPU and parity's extra ")
