"""parity diff: what is compared, what is printed where, and which status it ends with."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from unittest import mock

import pytest

from parity.__main__ import main
from parity.cli import diffing
from parity.dumps.reader import read_dump
from parity.errors import NotRunError
from parity.runs import side_diff
from parity.tree import Tree
from tests.cli.running import ENGINES, SHORT, STEP_KEYS, diff, faulty, said, written_dump
from tests.cli_runner import run_cli


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(*words: str) -> tuple[str, str]:
    """stdout and stderr of a command whose streams are terminals."""
    out, err = Terminal(), Terminal()
    argv = mock.patch.object(sys, "argv", ["parity", *words])
    streams = mock.patch.multiple(sys, stdout=out, stderr=err)
    with argv, streams, pytest.raises(SystemExit):
        main()
    return out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ((), 3 * STEP_KEYS),
        (("--n", "1"), STEP_KEYS),
        (("--fields", "+ffn"), 3 * (STEP_KEYS + 4 * 8)),
        (("--fields", "+gate,+topk"), 3 * (STEP_KEYS + 4 * 2)),
        (("--dump-prefill",), 6 * STEP_KEYS),
        (("--prefill", "ref"), 3 * STEP_KEYS),
        (("--tokens-from", "own"), 3 * STEP_KEYS),
        (("--hash", "kestrel-fnv"), 3 * STEP_KEYS),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_green_run_compares_every_key(tmp_path: Path, options: tuple[str, ...], keys: int) -> None:
    status, tree = diff(tmp_path, "--dut", "cpu", *options)
    assert (status, tree.verdict, tree.level) == (0, "same", "bit")
    assert (tree.counts.same, tree.counts.total) == (keys, keys)
    assert tree.control is not None
    assert (tree.control.kind, tree.control.fired) == ("inject", True)
    assert [state.equal for state in tree.states] == [True, True]


def test_hash_is_recorded_in_both_headers(tmp_path: Path) -> None:
    _, plain = diff(tmp_path, "--dut", "cpu")
    _, kestrel = diff(tmp_path, "--dut", "cpu", "--hash", "kestrel-fnv")
    assert (plain.ref["hash"], plain.dut["hash"]) == ("fnv1a64", "fnv1a64")
    assert (kestrel.ref["hash"], kestrel.dut["hash"]) == ("kestrel-fnv", "kestrel-fnv")
    digests = [{row.ref for row in tree.keys} for tree in (plain, kestrel)]
    assert digests[0].isdisjoint(digests[1])


@pytest.mark.parametrize("key", ["t3_l0_nrm", "t4_l1_k", "t4_l2_attn", "t5_l3_x", "t5_logits"])
def test_moved_element_is_named_with_what_feeds_it(tmp_path: Path, key: str) -> None:
    status, tree = diff(tmp_path, "--dut", faulty("Moved", key=key))
    assert (status, tree.verdict, tree.first) == (1, "diverged", key)
    assert tree.elements is not None
    assert (tree.elements.differ, tree.elements.max_ulp) == (1, 1)
    assert {row.state for row in tree.inputs} <= {"same"}
    assert tree.reproduce.startswith("parity diff --tokens 1,2,3 --n 3 --dut ")


def test_key_that_the_dut_leaves_out(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--dut", faulty("Silent", key="t4_l1_vs"))
    assert (status, tree.first, tree.counts.missing) == (1, "t4_l1_vs", 1)
    status, tree = diff(tmp_path, "--ref", faulty("Silent", key="t4_l1_vs"), "--dut", "cpu")
    assert (status, tree.first, tree.counts.extra) == (1, "t4_l1_vs", 1)


def test_side_that_differs_from_itself_is_unstable(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--dut", faulty("Once"))
    assert (status, tree.verdict, tree.first) == (1, "unstable", "t3_l3_x")
    assert tree.reason.startswith("dut differs from itself at t3_l3_x")


def test_end_state_decides_where_no_key_differs(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--dut", faulty("OldRow", steps=6))
    assert (status, tree.verdict, tree.first) == (1, "diverged", None)
    assert tree.reason == "end state differs, first at l3_k row 5 (position 5)"
    assert tree.counts.same == tree.counts.total


@pytest.mark.parametrize(
    ("key", "level", "statuses"),
    [("t4_l1_x", "logits", (1, 0, 0)), ("t4_logits", "greedy", (1, 1, 0))],
)
def test_level_asked_for_decides_the_status(
    tmp_path: Path, key: str, level: str, statuses: tuple[int, ...]
) -> None:
    for asked, wanted in zip(("bit", "logits", "greedy"), statuses, strict=True):
        status, tree = diff(tmp_path, "--dut", faulty("Misheard", key=key), "--level", asked)
        assert (status, tree.level, tree.level_asked, tree.first) == (wanted, level, asked, key)
        result = run_cli("diff", *SHORT, "--dut", faulty("Misheard", key=key), "--level", asked)
        assert f"level    {level} (asked for: {asked})" in result.stdout


def test_other_choice_is_the_greedy_level(tmp_path: Path) -> None:
    for asked in ("bit", "logits", "greedy"):
        status, tree = diff(tmp_path, "--dut", faulty("OwnChoice"), "--level", asked)
        assert (status, tree.level, tree.first) == (1, "none", "t2_logits")
        assert tree.reason.startswith("greedy choice differs at equal logits: position 2")
        assert tree.counts.same == tree.counts.total


def test_tokens_from_own_lets_the_dut_follow_itself(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--dut", faulty("OwnChoice"), "--tokens-from", "own")
    assert (status, tree.first) == (1, "t3_l0_nrm")
    assert tree.ref["tokens"].split(",")[3:] != tree.dut["tokens"].split(",")[3:]
    assert tree.run["tokens_from"] == "own"


def test_prefill_by_the_ref_is_said_in_the_verdict() -> None:
    result = run_cli("diff", *SHORT, "--dut", "cpu", "--prefill", "ref")
    assert result.stdout.startswith("SAME  138 of 138 keys equal, bit for bit, decode only\n")
    assert "3 tokens prefilled by the ref for both sides" in result.stdout


def test_engine_without_state(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--dut", faulty("NoState"))
    assert (status, tree.states) == (0, [])
    assert "states not compared: dut lacks the capability 'state'" in tree.notes
    result = run_cli("diff", *SHORT, "--dut", faulty("NoState"), "--prefill", "ref")
    assert said(result) == (
        3,
        "",
        f"parity: not run: {ENGINES}:NoState lacks the capability 'state', needed for "
        "--prefill ref\n  next: use --prefill own\n",
    )


def test_engine_that_cannot_inject_has_the_control_at_dump_level() -> None:
    result = run_cli("diff", *SHORT, "--dut", faulty("NoInject"))
    assert result.status == 0
    assert "control: dump level" in result.stdout.splitlines()[0]
    assert "fired: dump level, one digit changed at " in result.stdout


def test_engine_that_cannot_capture_has_no_elements(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--dut", faulty("NoCapture", key="t4_l2_attn"))
    assert (status, tree.first, tree.elements) == (1, "t4_l2_attn", None)


def test_quiet_is_one_line() -> None:
    green = run_cli("diff", *SHORT, "--dut", "cpu", "-q")
    assert said(green) == (0, "same: 138 of 138 keys, level bit, control fired\n", "")
    red = run_cli("diff", *SHORT, "--dut", faulty("Silent", key="t4_l1_vs"), "-q")
    assert said(red) == (
        1,
        "diverged: t4_l1_vs, missing in the dut, 1 missing, level logits\n",
        "",
    )


@pytest.mark.parametrize("option", ["--json", "--csv", "--html", "--junit"])
def test_report_on_stdout_stands_there_alone(tmp_path: Path, option: str) -> None:
    path = tmp_path / "report"
    words = ("diff", *SHORT, "--dut", faulty("Moved", key="t4_l2_attn"))
    on_stdout, to_file = run_cli(*words, option, "-"), run_cli(*words, option, str(path))
    assert (on_stdout.status, on_stdout.stderr) == (1, "")
    assert on_stdout.stdout.splitlines()[0] == path.read_text().splitlines()[0]
    assert "DIVERGED  first at" not in on_stdout.stdout.splitlines()[0]
    assert to_file.stdout.startswith("DIVERGED  first at t4_l2_attn")


def test_json_on_stdout_is_one_object() -> None:
    result = run_cli("diff", *SHORT, "--dut", "cpu", "--json", "-", "-q")
    assert json.loads(result.stdout)["verdict"] == "same"
    assert Tree.from_json(result.stdout).counts.same == 138


def test_progress_goes_to_stderr_and_only_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    words = ("diff", *SHORT, "--dut", "cpu")
    out, err = on_terminal(*words)
    assert "\rref cpu  prefill  0 of 138 keys" in err
    assert "\r" not in out
    assert "\x1b" not in out
    assert out.startswith("SAME  138 of 138 keys equal")
    assert on_terminal(*words, "-q")[1] == ""
    assert run_cli(*words).stderr == ""


def test_terminal_has_colours_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[" in on_terminal("diff", *SHORT, "--dut", "cpu")[0]
    assert "\x1b[" not in run_cli("diff", *SHORT, "--dut", "cpu").stdout


def test_default_dut_is_emu_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert side_diff.default_dut() == "emu"


def test_default_dut_is_cuda_with_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_diff, "engine_class", lambda name: lambda settings: name)
    assert side_diff.default_dut() == "cuda"


def test_default_dut_is_named_in_note_and_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diffing, "FALLBACK", "cpu")
    monkeypatch.setattr(diffing, "default_dut", lambda: "cpu")
    result = run_cli("diff", *SHORT, "--json", "-")
    tree = Tree.from_json(result.stdout)
    assert tree.notes[1:] == ["no CUDA device works here: the dut is emu (--dut cuda says why)"]
    assert tree.reproduce == "parity diff --tokens 1,2,3 --n 3 --dut cpu"


def test_explicit_cuda_is_never_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(name: str) -> None:
        raise NotRunError(f"{name}: no device", "use --dut emu")

    monkeypatch.setattr(
        "parity.runs.sides.engine_class", lambda n: absent(n) if n == "cuda" else None
    )
    result = run_cli("diff", *SHORT, "--ref", "cuda", "--dut", "cuda")
    assert said(result) == (3, "", "parity: not run: cuda: no device\n  next: use --dut emu\n")
    record, page = str(tmp_path / "run.json"), tmp_path / "run.html"
    words = ("diff", *SHORT, "--ref", "cuda", "--json", record, "--html", str(page))
    assert run_cli(*words).status == 3
    assert f"The whole tree is in {record}." in page.read_text()


# Dump files as sides.


def test_dump_as_ref_feeds_the_dut_its_tokens(tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    status, tree = diff(tmp_path, "--ref", str(path), "--dut", "cpu")
    assert (status, tree.verdict, tree.counts.same) == (0, "same", 138)
    assert tree.control is not None
    assert (tree.control.kind, tree.control.fired) == ("inject", True)
    assert tree.ref["tokens"] == tree.dut["tokens"]
    status, tree = diff(tmp_path, "--ref", str(path), "--dut", faulty("Moved", key="t4_l2_attn"))
    assert (status, tree.first) == (1, "t4_l2_attn")


def test_dump_as_ref_and_a_dead_tap_is_not_run(tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    status, tree = diff(tmp_path, "--ref", str(path), "--dut", faulty("DeadTap"))
    assert (status, tree.verdict) == (3, "not_run")


def test_tokens_come_from_the_dump_and_not_from_the_dut(tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    status, tree = diff(tmp_path, "--ref", str(path), "--dut", faulty("OwnChoice"))
    assert (tree.counts.same, tree.first, status) == (138, "t2_logits", 1)
    own = ("--tokens-from", "own")
    status, tree = diff(tmp_path, "--ref", str(path), "--dut", faulty("OwnChoice"), *own)
    assert (status, tree.first) == (1, "t3_l0_nrm")


def test_dump_as_dut(tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    status, tree = diff(tmp_path, "--ref", "cpu", "--dut", str(path))
    assert (status, tree.counts.same) == (0, 138)
    assert tree.control is not None
    assert (tree.control.kind, tree.control.fired) == ("dump level", True)
    entry = read_dump(path).entries[100]
    digit = "0" if entry.value_text()[0] != "0" else "1"
    text = path.read_text().replace(entry.value_text(), digit + entry.value_text()[1:])
    path.write_text(text)
    status, tree = diff(tmp_path, "--ref", "cpu", "--dut", str(path))
    assert (status, tree.first, tree.counts.differ) == (1, entry.key.tag, 1)


def test_dump_without_a_header_is_compared_by_its_keys(tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    path.write_text("\n".join(lines) + "\n")
    status, tree = diff(tmp_path, "--ref", str(path), "--dut", "cpu")
    assert (status, tree.counts.same) == (0, 138)
    assert "the ref dump names no tokens: the dut follows its own choices" in tree.notes


def test_two_dumps_need_no_run(tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    result = run_cli("diff", "--ref", str(path), "--dut", str(path), "--n", "9", "-q")
    assert said(result) == (0, "same: 138 of 138 keys, level bit, control: dump level\n", "")


@pytest.mark.parametrize(
    ("role", "options"),
    [
        ("ref", ("--tokens", "1,2,4", "--n", "3")),
        ("ref", ("--tokens", "1,2,3", "--n", "2")),
        ("dut", ("--tokens", "1,2,4", "--n", "3")),
        ("dut", ("--tokens", "1,2,3", "--n", "4")),
    ],
)
def test_dump_of_another_run_is_refused(
    tmp_path: Path, role: str, options: tuple[str, ...]
) -> None:
    path = written_dump(tmp_path)
    sides = {"ref": "cpu", "dut": "cpu", role: str(path)}
    result = run_cli("diff", "--ref", sides["ref"], "--dut", sides["dut"], *options)
    assert said(result) == (
        2,
        "",
        f"parity: the {role} dump {path} was made with other tokens (6) than this run "
        f"(3 of prompt, {options[-1]} decoded)\n"
        "  next: give the --model, --seed, --tokens and --n it was made with\n",
    )


# A value that is not finite ends a run early.


@pytest.mark.parametrize("bisect", [(), ("--bisect",)], ids=["linear", "bisect"])
@pytest.mark.parametrize(
    ("ref", "dut"),
    [("NotFinite", "cpu"), ("cpu", "NotFinite"), ("NotFinite", "NotFinite")],
)
def test_value_that_is_not_finite_is_not_run(
    tmp_path: Path, ref: str, dut: str, bisect: tuple[str, ...]
) -> None:
    sides = [name if name == "cpu" else faulty(name, pos=4) for name in (ref, dut)]
    status, tree = diff(tmp_path, "--ref", sides[0], "--dut", sides[1], *bisect)
    assert (status, tree.verdict) == (3, "not_run")
    assert "not finite with the same bytes: t4_l1_x" in tree.reason


def test_ref_dump_that_stopped_early(tmp_path: Path) -> None:
    path = tmp_path / "stopped.dump"
    run_cli("dump", "--engine", faulty("NotFinite", pos=4), "-o", str(path), *SHORT)
    status, tree = diff(tmp_path, "--ref", str(path), "--dut", "cpu")
    assert (status, tree.verdict) == (3, "not_run")
