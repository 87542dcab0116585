"""``parity gate`` as a shell sees it: statuses, text, JSON, and the evidence in the store.

Times are made up by the engines (tests.red.gate_engines); the real clock is read by one test, which
does not look at the verdict.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from parity.errors import InputError
from parity.gate import passes
from parity.gate.evidence import keep
from parity.model.generator import prompt_tokens
from parity.store import Entry, Store, canonical
from tests.cli_runner import Result, run_cli
from tests.core.store_samples import content
from tests.red.gate_engines import CLOCK

HERE = "tests.red.gate_engines"
SHORT = ("--n", "4", "--m", "1,4", "--rounds", "6")
BASE, FAST = f"{HERE}:Paced@us=1000", f"{HERE}:Paced@us=800"
NAME = "trial"
ROOT = Path(__file__).parents[2]
EXAMPLE = Path("examples", "exec_engine.py")


@pytest.fixture
def made_up_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "now", CLOCK.now)
    CLOCK.at = 0


def gate(tmp_path: Path, *words: str, base: str = BASE, fast: str = FAST) -> Result:
    store = str(tmp_path / "store")
    given = ("--engine", base, f"--fast={fast}", "--store", store, "--name", NAME, *SHORT)
    return run_cli("gate", *given, *words)


def written(tmp_path: Path, *words: str, **sides: str) -> tuple[Result, dict[str, Any]]:
    path = tmp_path / "gate.json"
    result = gate(tmp_path, *words, "--json", str(path), **sides)
    assert path.exists(), result.stderr
    return result, json.loads(path.read_text())


def facts(result: Result) -> dict[str, str]:
    """Labelled lines of a report, folded lines joined."""
    found: dict[str, str] = {}
    label = ""
    for line in result.stdout.splitlines():
        if line.startswith("  ") and line[2:3].strip() and line[12:13] == " ":
            label = line[2:13].strip()
            found[label] = line[13:]
        elif line.startswith(" " * 13) and label:
            found[label] += f" {line.strip()}"
    return found


# --- verdicts -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("made_up_time")
def test_default(tmp_path: Path) -> None:
    result, record = written(tmp_path)
    assert (result.status, result.stderr) == (0, "")
    assert result.stdout.startswith(f"DEFAULT  {FAST} against {BASE}: equal and faster\n")
    assert (record["verdict"], record["exit_status"], record["first"]) == ("default", 0, None)
    told = facts(result)
    assert told["steps"] == "4,968 of 4,968 keys equal in single steps, the prompt's too"
    rows = "2,208 keys, 48 rows of logits, 12 end states equal; each pass made twice"
    assert told["rows"] == rows
    assert told["control"] == "fired: 9 of 9 planted faults found at their key"
    assert told["timed"] == "24 timed passes, logits and end states compared in each"
    assert told["test"] == (
        "exact two-sided sign test of the paired ratios, a tie counted against either side: "
        "6 of 6 pairs faster, 0 slower, p = 0.031"
    )
    assert told["interval"] == (
        "distribution-free interval of the median paired ratio, from its order statistics, "
        "ranks 1 and 6 of 6; coverage at least 0.95, here 0.9688"
    )
    row = ("all", "8.00 (8.00 to 8.00)", "6.40 (6.40 to 6.40)", "0.800 (0.800 to 0.800)")
    lines = [re.split("  +", line.strip()) for line in result.stdout.splitlines()]
    assert list(row) in lines
    assert all(len(line) <= 100 for line in result.stdout.splitlines()[1:])


@pytest.mark.usefixtures("made_up_time")
@pytest.mark.parametrize(
    ("fast", "words", "status", "line"),
    [
        ("Paced@us=1300", (), 1, "opt-in: FAST against BASE: equal, slower, ratio 1.300 (1.300 to"),
        ("Paced@us=500", ("--rounds", "3"), 3, "undecided: FAST against BASE: equal, with too few"),
        (
            "Paced+two_pass@us=500",
            (),
            1,
            "refused: FAST against BASE: not equal: seed 7, M = 1: a key differs, first t1_l1_attn",
        ),
    ],
    ids=["opt-in", "undecided", "refused"],
)
def test_one_line_and_status(
    tmp_path: Path, fast: str, words: tuple[str, ...], status: int, line: str
) -> None:
    result = gate(tmp_path, *words, "-q", fast=f"{HERE}:{fast}")
    assert (result.status, result.stderr, result.stdout.count("\n")) == (status, "", 1)
    expected = line.replace("FAST", f"{HERE}:{fast}").replace("BASE", BASE)
    assert result.stdout.startswith(expected)


@pytest.mark.usefixtures("made_up_time")
def test_refused_names_key_op_and_a_line_that_shows_it(tmp_path: Path) -> None:
    fast = f"{HERE}:Paced+two_pass@us=500"
    result, record = written(tmp_path, fast=fast)
    assert (result.status, record["first"]) == (1, "t1_l1_attn")
    assert facts(result)["cause"].startswith("t1_l1_attn: attention (contract ")
    lines = result.stdout.splitlines()
    line = lines[lines.index("  reproduce:") + 1].strip()
    assert line == record["problem"]["reproduce"]
    shown = run_cli(*line.split()[1:])
    assert shown.status == 1
    assert "t1_l1_attn" in shown.stdout
    assert record["statistics"]["all"] is None
    assert Store(tmp_path / "store").latest("gate", NAME).record["verdict"] == "refused"


@pytest.mark.usefixtures("made_up_time")
def test_a_prompt_begins_every_seed_s(tmp_path: Path) -> None:
    """The line that shows a difference again has the whole prompt, and finds the same key."""
    words = ("--tokens", "5,6,7", "--seeds", "3")
    _, record = written(tmp_path, *words)
    assert (record["settings"]["prompt"], record["verdict"]) == (32, "default")
    result, record = written(tmp_path, *words, fast=f"{HERE}:Paced+two_pass@us=500")
    assert result.status == 1
    line = record["problem"]["reproduce"]
    drawn = prompt_tokens(record["problem"]["seed"], 29, 512)  # of moe-tiny's ids
    assert f" --tokens {','.join(map(str, [5, 6, 7, *drawn]))} " in line
    assert f"\n  {record['first']} " in run_cli(*line.split()[1:]).stdout
    long = ",".join(map(str, range(40)))  # ids of the seed follow all the same
    _, record = written(tmp_path, "--tokens", long)
    assert record["settings"]["prompt"] == 48


@pytest.mark.usefixtures("made_up_time")
def test_the_same_code_is_said(tmp_path: Path) -> None:
    build = f"{HERE}:OneBuild"
    result, record = written(tmp_path, base=build, fast="+quick")
    assert (result.status, record["verdict"]) == (3, "undecided")
    assert record["candidate"]["spec"] == f"{build}+quick"
    assert record["code"]["identical"] is True
    assert record["base"]["compiled"] == record["candidate"]["compiled"]
    assert facts(result)["code"].startswith("both ran the same compiled code")
    assert "equal, and both sides run the same code: nothing to gate" in result.stdout


def test_the_real_clock(tmp_path: Path) -> None:
    """An engine against itself: whatever the machine does meanwhile, it is no default."""
    result, record = written(tmp_path, base="cpu", fast="cpu")
    assert (result.status, record["verdict"]) == (3, "undecided")
    assert facts(result)["code"].startswith("both ")
    took = [pair[side] for pair in record["timing"]["pairs"] for side in ("base", "candidate")]
    assert len(took) == 24
    assert min(took) > 0
    assert record["timing"]["clock"]["monotonic"] is True


def test_programs_are_sides_too(tmp_path: Path) -> None:
    """A program of other text and the same bits is equal; one with another constant is not."""
    text = (ROOT / EXAMPLE).read_text()
    other = tmp_path / "other.py"
    other.write_text(text.replace("total = total + ", "total += "))
    assert other.read_text() != text
    plain, same = (f"exec:{sys.executable} {path}" for path in (ROOT / EXAMPLE, other))
    equal, record = written(tmp_path, "--rounds", "3", base=plain, fast=same)
    assert equal.status == 3  # too few rounds, whatever the clock says
    assert record["reason"] == "equal, with too few pairs to tell: 6 are the fewest"
    other.write_text(text.replace("np.float32(1) + np.abs(x)", "np.float32(1.5) + np.abs(x)"))
    result, record = written(tmp_path, base=plain, fast=same)
    assert (result.status, record["verdict"]) == (1, "refused")
    assert record["first"] == "t0_l0_attn"


def test_a_program_has_a_model_of_its_own(tmp_path: Path) -> None:
    """It is named, its control is at dump level, and no engine of another model can be gated."""
    program = f"exec:{sys.executable} {ROOT / EXAMPLE}"
    told = facts(gate(tmp_path, "--rounds", "3", base=program, fast=program))
    assert told["model"].startswith("toy, seeds 7, 8, 9; ")
    text = "fired: 9 of 9 digits changed in a dump (dump level) found at their key"
    assert told["control"] == text
    result = gate(tmp_path, base=program, fast="cpu")
    assert (result.status, result.stdout) == (2, "")
    assert f"two models: {program} has toy, cpu has moe-tiny seed 7" in result.stderr


@pytest.mark.usefixtures("made_up_time")
def test_base_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.runs.side_diff.default_dut", lambda: "emu")
    words = ("--fast", "fma", "--store", str(tmp_path / "store"), *SHORT)
    result = run_cli("gate", *words)
    assert result.status == 1
    assert result.stdout.startswith("REFUSED  emu+fma against emu: not equal: ")
    note = "no CUDA device works here: the base is emu (--engine cuda says why)"
    assert facts(result)["note"] == note
    assert Store(tmp_path / "store").names("gate") == ["emu+fma against emu, moe-tiny"]


# --- not run, bad input ---------------------------------------------------------------------------


@pytest.mark.usefixtures("made_up_time")
def test_missing_rows_are_not_run(tmp_path: Path) -> None:
    fast = f"{HERE}:NoRows"
    result, record = written(tmp_path, fast=fast)
    text = f"{fast} lacks the capability 'rows', needed for a gate: M > 1 cannot be checked"
    assert (result.status, result.stdout) == (3, "")
    assert result.stderr.splitlines() == [
        f"parity: not run: {text}",
        "  next: parity engines lists what each engine offers",
    ]
    assert (record["verdict"], record["reason"]) == ("not_run", text)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--seeds", "2"), "--seeds 2: that says too little"),
        (("--m", "4"), "--m 4: that says too little"),
        (("--m", "1,8"), "--n 4 with --m 8: no forward has 8 rows"),
        (("--m", "x"), "--m: 'x' is not a number"),
        (("--n", "0"), "--n 0: nothing to decode"),
        (("--rounds", "2"), "--rounds 2 with --seeds 3: not every seed is timed"),
        (("--confidence", "0.5"), "--confidence 0.5: a gate asks for 0.95 or more, below 1"),
        (("--confidence", "nan"), "--confidence nan: not a number"),
        (("--name", "-x"), "'-x' cannot name a gate"),
        (("--model", "moe-tinny"), "unknown model 'moe-tinny'"),
        (("--fast", "two_pss"), "--fast two_pss: 'two_pss' is no variant and no engine"),
        (("--fast", "run.dump"), "--fast run.dump: not an engine"),
        (("--engine", "run.dump"), "--engine run.dump: not an engine"),
        (("--engine", "cpu", "--fast", "+libm_exp,+exp_via_double"), "cpu+exp_via_double+libm_exp"),
        (("--tokens", "1,x"), "--tokens: 'x' is not a token id"),
        (("--tokens", "1", "--prompt", "a"), "--tokens with --prompt: both are the prompt"),
        (("--prompt", "a"), "--prompt: moe-tiny seed 7 has no tokenizer"),
        (("--tokens", "512"), "token 512"),
        (("--show", NAME), "--show with --fast: one shows, the other runs"),
        (("--json", "nowhere/x.json"), "nowhere/x.json: cannot be written"),
    ],
)
def test_bad_input(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    result = gate(tmp_path, *words)
    assert (result.status, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"parity: {message}")
    assert lines[1].startswith("  next: ")
    assert not (tmp_path / "store").exists()


@pytest.mark.usefixtures("made_up_time")
def test_a_report_in_the_store_is_refused(tmp_path: Path) -> None:
    assert gate(tmp_path).status == 0
    store = tmp_path / "store"
    before = content(store)
    path = str(store / "head.json")
    shows = ("gate", "--show", NAME, "--store", str(store), "--json", path)
    for result in (gate(tmp_path, "--json", path), run_cli(*shows)):
        assert (result.status, result.stdout) == (2, "")
        assert f"{path}: lies in the store" in result.stderr
    assert content(store) == before


def test_a_store_that_cannot_be_made_is_said_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: object) -> None:
        raise AssertionError("an engine was opened")

    monkeypatch.setattr("parity.runs.sides.open_unloaded", opened)
    folder = tmp_path / "absent" / "store"
    result = gate(tmp_path, "--store", str(folder))
    assert (result.status, result.stdout) == (2, "")
    assert f"{folder}: cannot be written: {folder.parent}: no such folder" in result.stderr


def test_names_that_are_there_can_be_told_apart(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for name in ("a against b, c", "d"):
        store.append("gate", name, {}, action="gate", expected=None)
    result = run_cli("gate", "--show", "e", "--store", str(store.path))
    assert result.status == 2
    assert "  next: gates there: 'a against b, c', d\n" in result.stderr


def test_nothing_to_try() -> None:
    result = run_cli("gate", "--engine", "cpu")
    assert (result.status, result.stderr.splitlines()[0]) == (
        2,
        "parity: nothing to try: --fast is missing",
    )


# --- evidence -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("made_up_time")
def test_evidence_holds_everything_and_is_never_overwritten(tmp_path: Path) -> None:
    _, first = written(tmp_path)
    (tmp_path / "gate.json").unlink()
    result, second = written(tmp_path, fast=f"{HERE}:Paced@us=1300")
    entries = Store(tmp_path / "store").history("gate", NAME)
    assert [entry.record["verdict"] for entry in entries] == ["default", "opt-in"]
    for entry, told in zip(entries, (first, second), strict=True):
        evidence = told.pop("evidence")
        assert entry.record == told
        assert hashlib.sha256(canonical(told)).hexdigest() == entry.address == evidence["address"]
        assert (evidence["seq"], evidence["name"]) == (entry.seq, NAME)
    assert entries[1].previous == entries[0].digest
    assert f"entry 2, sha256 {entries[1].address[:16]}" in facts(result)["evidence"]


@pytest.mark.usefixtures("made_up_time")
def test_what_stands_in_the_record(tmp_path: Path) -> None:
    _, record = written(tmp_path)
    assert (record["format"], record["version"]) == ("parity-gate", 1)
    assert record["command"].startswith("parity gate --engine ")
    for role, spec in (("base", BASE), ("candidate", FAST)):
        header = record[role]
        assert header["spec"] == spec
        names = ("engine", "version", "tier", "variants", "device", "driver", "compiler", "kernels")
        assert all(header.get(name) for name in (*names, "options", "compiled", "packages"))
    rounds, alone = record["timing"]["pairs"], record["timing"]["rounds"]
    assert len({(tuple(one["tokens"]), one["outputs"]) for one in alone}) == len(alone) == 6
    places = [(pair["seed"], pair["round"], pair["size"]) for pair in rounds]
    assert places == [(7 + at // 2, at + 1, size) for at in range(6) for size in (1, 4)]
    assert {(pair["base"], pair["candidate"]) for pair in rounds} == {(4_000_000, 3_200_000)}
    for seed in (7, 8, 9):  # of two rounds of a seed each side goes first in one
        firsts = [pair["candidate_first"] for pair in rounds if pair["seed"] == seed]
        assert sum(firsts[0::2]) == sum(firsts[1::2]) == 1
    assert [seed["seed"] for seed in record["equality"]] == [7, 8, 9]
    for seed in record["equality"]:
        assert [size["size"] for size in seed["sizes"]] == [1, 4]
        assert seed["single_steps"]["verdict"] == "same"
        assert all(size["control"]["fired"] for size in seed["sizes"])
        assert len(seed["outputs"]) == 64
    assert record["settings"]["seeds"] == [7, 8, 9]
    assert record["statistics"]["all"]["interval"]["ranks"] == [1, 6]
    assert record["statistics"]["all"]["signs"] == {
        "faster": 6,
        "slower": 0,
        "ties": 0,
        "p": 0.03125,
    }


@pytest.mark.usefixtures("made_up_time")
def test_show_prints_what_the_run_printed(tmp_path: Path) -> None:
    ran = gate(tmp_path, fast=f"{HERE}:Paced@us=1300")
    shown = run_cli("gate", "--show", NAME, "--store", str(tmp_path / "store"))
    assert (shown.status, shown.stdout, shown.stderr) == (1, ran.stdout, "")
    unknown = run_cli("gate", "--show", "other", "--store", str(tmp_path / "store"))
    assert (unknown.status, unknown.stdout) == (2, "")
    assert unknown.stderr.splitlines()[0].startswith("parity: no gate 'other' in ")
    assert unknown.stderr.splitlines()[1] == f"  next: gates there: {NAME}"


@pytest.mark.usefixtures("made_up_time")
def test_red_altered_evidence(tmp_path: Path) -> None:
    gate(tmp_path)
    store = tmp_path / "store"
    [entry] = Store(store).history("gate", NAME)
    path = store / "objects" / entry.address[:2] / entry.address
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"3200000", b"1200000"))
    for words in (("--show", NAME), ("--engine", BASE, "--fast", FAST, "--name", NAME, *SHORT)):
        result = run_cli("gate", *words, "--store", str(store))
        assert (result.status, result.stdout) == (2, "")
        assert result.stderr.startswith(f"parity: {path}: altered: its SHA-256 is not its name")


@pytest.mark.usefixtures("made_up_time")
def test_foreign_record_is_not_shown(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.append("gate", NAME, {"format": "other"}, action="gate", expected=None)
    result = run_cli("gate", "--show", NAME, "--store", str(store.path))
    assert (result.status, result.stdout) == (2, "")
    assert "not the evidence of a gate of this version" in result.stderr


@pytest.mark.usefixtures("made_up_time")
def test_interrupted_gate_keeps_nothing(tmp_path: Path) -> None:
    result = gate(tmp_path, fast=f"{HERE}:Interrupted")
    assert (result.status, result.stdout, result.stderr) == (2, "", "parity: interrupted\n")
    assert not (tmp_path / "store").exists()


class Busy(Store):
    """Another writer adds an entry just before ours, ``times`` times."""

    times = 1

    def append(self, *args: Any, **options: Any) -> Entry:
        if self.times:
            self.times -= 1
            before = self.history("gate", NAME) if NAME in self.names("gate") else []
            expected = before[-1].digest if before else None
            super().append("gate", NAME, {"by": "other"}, action="gate", expected=expected)
        return super().append(*args, **options)


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    store = Busy(tmp_path / "store")
    keep(store, NAME, {"by": "us"})
    assert [entry.record["by"] for entry in store.history("gate", NAME)] == ["other", "us"]
    store.times = 100
    with pytest.raises(InputError, match="another writer came first each time"):
        keep(store, NAME, {"by": "us"})


@pytest.mark.usefixtures("made_up_time")
def test_what_was_found_is_printed_where_it_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> Entry:
        raise InputError("store: cannot be written: no room", "make room")

    monkeypatch.setattr(Store, "append", full)
    result = gate(tmp_path)
    assert (result.status, result.stderr.splitlines()[0]) == (
        2,
        "parity: store: cannot be written: no room",
    )
    assert result.stdout.startswith("DEFAULT  ")
    assert facts(result)["evidence"] == "not kept"
