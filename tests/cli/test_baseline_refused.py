"""What ``parity baseline`` refuses: one line, status 2, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.store import Store
from tests.cli.baselines import check, footprint, promote, save, saved
from tests.cli.running import SHORT, faulty, written_dump
from tests.cli_runner import Result, run_cli
from tests.programs.specs import EXAMPLE

# Names that other tools take for "update what is expected".
SWITCHES = (
    *("UPDATE_BASELINE", "UPDATE_BASELINES", "PARITY_UPDATE", "PARITY_UPDATE_BASELINE"),
    *("PARITY_BASELINE_UPDATE", "PARITY_PROMOTE", "PARITY_ACCEPT", "PARITY_FORCE", "REGOLD"),
    *("UPDATE_GOLDEN", "UPDATE_SNAPSHOTS", "SNAPSHOT_UPDATE", "INSTA_UPDATE", "UPDATE_EXPECT"),
    *("PARITY_STORE", "PARITY_BASELINE", "PARITY_BASELINE_STORE"),
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def refused(result: Result, *said: str) -> None:
    """One line (and the next step) on stderr, status 2."""
    assert (result.status, result.stdout) == (2, ""), result
    first, *rest = result.stderr.splitlines()
    for text in said:
        assert text in first, result.stderr
    assert first.startswith("parity: ")
    assert [line[:8] for line in rest] in ([], ["  next: "])


# --- save -----------------------------------------------------------------------------------------


def test_a_name_that_is_taken(store: Path) -> None:
    """B08 (a): the bytes of A stay, also with another engine."""
    saved(store)
    before = footprint(store)
    for side in ("cpu", "emu", "cpu+libm_exp"):
        refused(save(store, "x", side), "baseline 'x' exists already: entry 1 of 20")
    assert footprint(store) == before


@pytest.mark.parametrize(
    ("side", "said"),
    [
        (faulty("Once"), "unstable: run 2 differs from run 1 first at t3_l3_x: refused"),
        (faulty("DeadTap"), "not run, the control did not fire"),
        (faulty("NotFinite", pos=4), "not finite with the same bytes: t4_l1_x"),
        (faulty("Stopped", pos=4), "interrupted"),
    ],
    ids=["unstable", "dead tap", "not finite", "interrupted"],
)
def test_a_run_that_failed_by_itself(store: Path, side: str, said: str) -> None:
    """B08 (f)."""
    refused(save(store, "x", side), said)
    assert not store.exists()


def test_a_run_that_is_not_the_ref(store: Path) -> None:
    """B08 (f): red against --ref."""
    side = faulty("Moved", key="t4_l2_attn")
    refused(
        save(store, "x", side, "--ref", "emu"), "against emu: diverged, first at t4_l2_attn: ref"
    )
    assert not store.exists()


def test_a_red_report_as_evidence(store: Path, tmp_path: Path) -> None:
    """B08 (f): --from a comparison that failed."""
    path = tmp_path / "red.json"
    side = faulty("Moved", key="t4_l2_attn")
    words = ("diff", "--ref", "cpu", "--dut", side, *SHORT, "-q", "--json", str(path))
    assert run_cli(*words).status == 1
    refused(save(store, "x", side, "--from", str(path)), "diverged, first at t4_l2_attn: refused")
    (tmp_path / "none.json").write_text("{}")
    refused(save(store, "x", "cpu", "--from", str(tmp_path / "none.json")), "not a parity-div")
    refused(save(store, "x", "cpu", "--from", str(tmp_path / "absent")), "cannot be read")
    assert not store.exists()


def test_a_report_of_logits_alone(store: Path, tmp_path: Path) -> None:
    """Same at a weaker level is not the same."""
    path = tmp_path / "logits.json"
    side = faulty("Misheard", key="t4_l2_attn")
    words = ("diff", "--ref", "cpu", "--dut", side, *SHORT, "-q", "--json", str(path))
    assert run_cli(*words, "--level", "logits").status == 0
    said = "diverged, first at t4_l2_attn, the values are equal, the digests are not"
    refused(save(store, "x", side, "--from", str(path)), said)
    assert not store.exists()


def test_a_ref_that_is_the_same_program(store: Path) -> None:
    said = f"--ref {EXAMPLE}: the same engine, tier and variants"
    refused(save(store, "x", EXAMPLE, "--ref", EXAMPLE), said)
    assert not store.exists()


@pytest.mark.parametrize("ref", ["cpu", "cpu:exact", "ref.dump"])
def test_a_ref_that_is_the_same_engine(store: Path, tmp_path: Path, ref: str) -> None:
    path = written_dump(tmp_path)
    given = str(path) if ref.endswith(".dump") else ref
    said = "the same engine, tier and variants: it shows nothing"
    refused(save(store, "x", "cpu", "--ref", given), said)
    assert not store.exists()


def without(text: str, tag: str) -> str:
    """A dump without the lines of the keys that begin with ``tag``."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(tag))


def test_a_dump_that_is_not_whole(store: Path, tmp_path: Path) -> None:
    whole = written_dump(tmp_path).read_text()
    header = [line for line in whole.splitlines() if line.startswith("#")]
    made = {
        "partial": (f"# partial interrupted at t5\n{whole}", "a partial dump: interrupted at t5"),
        "stopped": (f"# stopped t5_l0_attn\n{whole}", "its run was stopped: t5_l0_attn"),
        "cut": (whole[:-20], "partial dump"),
        "line": (without(whole, "t5_logits"), "a partial dump: no t5_logits, which t4 has"),
        "layer": (without(whole, "t5_l3_"), "a partial dump: no t5_l3_"),
        "step": (without(whole, "t5_"), "a partial dump: it ends at t4, its tokens at t5"),
        "prompt": (
            whole.replace("# prefill 3 own", "# prefill three"),
            "header prefill: 'three' does not say how many of the 6 tokens are the prompt",
        ),
        "long prompt": (whole.replace("# prefill 3 ", "# prefill 7 "), "header prefill: '7 own'"),
        "no prompt": (whole.replace("# prefill 3 ", "# prefill 0 "), "header prefill: '0 own'"),
        "tokens": (whole.replace("# tokens 1,2", "# tokens 1,b"), "header tokens: 'b' is no token"),
        "empty": ("\n".join(header) + "\n", "no keys in ref and dut"),
        "bare": (whole.replace("# weights ", "# weight "), "its header does not name weights"),
        "none": ("", "its header does not name engine, version"),
    }
    for name, (text, said) in made.items():
        path = tmp_path / f"{name}.dump"
        path.write_text(text)
        refused(save(store, "x", str(path)), f"{path}: ", said)
    assert not store.exists()


def test_a_dump_that_is_not_the_ref(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "red.dump"
    words = ("dump", "--engine", faulty("Moved", key="t4_l2_attn"), "-o", str(path), *SHORT)
    assert run_cli(*words).status == 0
    refused(save(store, "x", str(path), "--ref", "emu"), "diverged, first at t4_l2_attn: refused")
    assert not store.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cpu", "--runs", "2"), "--runs 2: too few"),
        (("cpu", "--tensors", "t9_l0_attn"), "--tensors t9_l0_attn: the run dumps no such key"),
        (("values.npz",), "values.npz: a tensor file says nothing of its run"),
        (("nonsense",), "is no engine, no dump file and no program"),
        (("absent.dump",), "absent.dump: No such file or directory"),
        (("cpu", "--n", "0"), "--n 0: nothing to decode"),
        (("cpu", "--ref", "nonsense"), "is no engine, no dump file and no program"),
        (("cpu", "--ref", "emu", "--from", "run.json"), "--ref with --from: one of them shows it"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_makes_no_sense(store: Path, words: tuple[str, ...], said: str) -> None:
    refused(save(store, "x", *words), said)
    assert not store.exists()


def test_a_store_that_cannot_be_made_is_said_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: object) -> None:
        raise AssertionError("an engine was opened")

    monkeypatch.setattr("parity.runs.sides.open_side", opened)
    folder = tmp_path / "absent" / "store"
    refused(save(folder, "x", "cpu"), f"{folder}: cannot be written: {folder.parent}: no such")
    assert not folder.parent.exists()


def test_a_program_without_line_mode(store: Path) -> None:
    """It cannot be run token by token: not run, and nothing is written."""
    result = save(store, "x", "exec:true")
    assert (result.status, result.stdout) == (3, "")
    assert result.stderr.startswith("parity: not run: exec:true has no line mode")
    assert not store.exists()


def test_options_that_contradict_a_dump(store: Path, tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    for option, value in (
        ("--seed", "8"),
        ("--n", "4"),
        ("--tokens", "1,2"),
        ("--hash", "kestrel-fnv"),
    ):
        refused(save(store, "x", str(path), option, value), f"is of another run: {option} ")
    assert not store.exists()
    assert save(store, "x", str(path), "--seed", "7", "--tokens", "1, 2, 3").status == 0


def test_a_name_that_cannot_be(store: Path) -> None:
    refused(save(store, ".x", "cpu"), "'.x' cannot name a baseline")
    assert not store.exists()


def test_a_folder_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    refused(save(tmp_path, "x", "cpu"), "is no store, and not empty")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


# --- check ----------------------------------------------------------------------------------------


def test_a_baseline_that_is_not_there(store: Path, tmp_path: Path) -> None:
    """B08 (b): status 2, and nothing is made."""
    refused(check(store), "no baseline 'x' in ")
    refused(promote(store, "x", "--ref", "emu"), "no baseline 'x' in ")
    refused(run_cli("baseline", "show", "x", "--store", str(store)), "no baseline 'x' in ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["1", "0", "false", "all"])
def test_no_environment_variable_decides(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """B08 (c): neither creates nor updates, set to anything."""
    for name in SWITCHES:
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    refused(check(store), "no baseline 'x' in ")
    assert list(tmp_path.iterdir()) == []
    saved(store)
    before = footprint(store)
    assert check(store, "x", "-q", "--engine", faulty("Moved", key="t4_l2_attn")).status == 1
    refused(save(store, "x", "emu"), "exists already")
    assert footprint(store) == before
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_options_that_contradict_the_record(store: Path) -> None:
    saved(store)
    contradictions = {
        "--seed": ("7", "8"),
        "--n": ("3", "4"),
        "--tokens": ("1,2,3", "1,2"),
        "--model": ("moe-tiny", "dense-tiny"),
        "--weights": ("q4", "f32"),
        "--hash": ("fnv1a64", "kestrel-fnv"),
    }
    for option, (recorded, given) in contradictions.items():
        said = f"is of another run: {option} {recorded} recorded, {given} given"
        refused(check(store, "x", option, given), said)
        assert check(store, "x", "-q", option, recorded).status == 0
    refused(check(store, "x", "--dump-prefill"), "--dump-prefill False recorded, True given")
    refused(check(store, "x", "--fields", "+ffn"), "--fields none recorded, +ffn given")


def test_another_model_under_the_same_name(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights are digested as the engine holds them: other ones are no divergence."""
    saved(store)
    from parity_cpu.engine import Engine

    held = Engine.weights

    def others(self: Engine) -> dict[str, object]:
        found = dict(held(self))
        kind, digest = found["final_norm"]
        return {**found, "final_norm": (kind, digest ^ 1)}

    monkeypatch.setattr(Engine, "weights", others)
    refused(check(store), "baseline 'x' is of another run: weights ")


def test_the_accepted_entry(store: Path) -> None:
    saved(store)
    digest = Store(store).latest("baseline", "x").digest
    assert check(store, "x", "-q", "--accepted", digest[:12]).status == 0
    assert check(store, "x", "-q", "--accepted", digest).status == 0
    for given in ("0" * 12, digest[:11], ""):
        refused(check(store, "x", "--accepted", given), f"the entry on hand is {digest[:12]} (1)")


def test_a_tensor_file_is_no_side(store: Path, tmp_path: Path) -> None:
    saved(store)
    path = tmp_path / "x.npz"
    path.write_bytes(b"PK")
    refused(check(store, "x", "--engine", str(path)), f"{path}: a tensor file says nothing of its")


def test_an_engine_that_is_not_here(store: Path, tmp_path: Path) -> None:
    saved(store)
    out = tmp_path / "r.json"
    result = check(store, "x", "--engine", faulty("NoInject") + "@nonsense=1", "--json", str(out))
    assert result.status == 2
    assert not out.exists()


def test_every_file_of_a_store_altered(store: Path) -> None:
    """B08 (e): one byte, wherever it is, is seen before anything is run."""
    saved(store, "x", "cpu", "--tensors", "first")
    files = [path for path in sorted(store.rglob("*")) if path.is_file() and path.name != "lock"]
    assert len(files) == 7  # format, head, entry, record, dump, states, tensors
    for path in files:
        data = path.read_bytes()
        path.chmod(0o644)
        for at in (0, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            refused(check(store), f"{path}: altered")
        path.unlink()
        refused(check(store), f"{path}: missing")
        path.write_bytes(data)
    assert check(store, "x", "-q").status == 0
