"""Line mode from the command line: what works, what is lacking, and what a program does wrong."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from parity.dumps.reader import read_dump
from parity.fnv import fnv1a64_array
from parity.tree import Tree
from tests.cli.running import SHORT, diff, said
from tests.cli_runner import run_cli
from tests.programs.processes import PATIENCE, gone
from tests.programs.scripted import VOCAB, ZEROS
from tests.programs.specs import EXAMPLE, ROOT, scripted, shell

CHECK = "  next: the protocol is docs/exec.md; logs belong on stderr\n"
OLD = "  next: it can be the dut of parity diff as it is; docs/exec.md says what line mode is\n"
HELLO = "protocol 2\nengine scripted 1\ncapabilities{}\nok\n"
STABLE = ("stable", "--tokens", "1,2,3", "--steps", "2", "--n", "2", "-q")
ZERO_DIGEST = f"{fnv1a64_array(np.zeros(VOCAB, np.float32)):016x}"


def stable(spec: str) -> tuple[int, str, str]:
    return said(run_cli(*STABLE, "--engine", spec))


# --- what works


def test_the_scripted_program_is_stable(tmp_path: Path) -> None:
    """What every red test below changes one thing of."""
    told = "same: 2 of 2 keys, level bit, repeatable: 2 runs, control: dump level\n"
    assert stable(scripted(tmp_path)) == (0, told, "")


def test_dump_of_a_program(tmp_path: Path) -> None:
    path = tmp_path / "toy.dump"
    result = run_cli("dump", "--engine", EXAMPLE, "-o", str(path), *SHORT)
    assert (result.status, result.stdout) == (0, "")
    dump = read_dump(path)
    assert len(dump.entries) == 3 * 9
    assert [entry.key.tag for entry in dump.entries][:9] == [
        *(f"t3_l{layer}_{field}" for layer in (0, 1) for field in ("k", "v", "attn", "x")),
        "t3_logits",
    ]
    head = dump.header
    assert (head["engine"], head["version"], head["tier"]) == ("toy", "1", "own")
    assert (head["model"], head["device"], head["emulated"]) == ("toy", "untold", "no")
    assert "weights" not in head
    assert head["tokens"].startswith("1,2,3,")
    assert len(head["tokens"].split(",")) == 6


def test_a_program_as_ref_is_followed_by_an_engine(tmp_path: Path) -> None:
    """Its own choices are fed to both; the toy is another model than the cpu engine's."""
    status, tree = diff(tmp_path, "--ref", EXAMPLE, "--dut", "cpu")
    assert (status, tree.verdict) == (1, "diverged")
    assert tree.first is not None
    assert tree.ref["tokens"] == tree.dut["tokens"]
    assert tree.dut["engine"] == "cpu"


def test_a_program_is_held_against_its_own_dump_and_digest(tmp_path: Path) -> None:
    dump, tree = tmp_path / "toy.dump", tmp_path / "toy.digest"
    assert run_cli("dump", "--engine", EXAMPLE, "-o", str(dump), *SHORT).status == 0
    assert run_cli("digest", EXAMPLE, "-o", str(tree), *SHORT).status == 0
    status, found = diff(tmp_path, "--ref", str(dump), "--dut", EXAMPLE)
    assert (status, found.verdict, found.counts.same) == (0, "same", 27)
    status, found = diff(tmp_path, "--ref", EXAMPLE, "--dut", str(dump))
    assert (status, found.verdict, found.counts.same) == (0, "same", 27)
    result = run_cli("digest", str(tree), "--against", EXAMPLE, *SHORT, "-q")
    assert (result.status, result.stderr) == (0, "")
    assert result.stdout.startswith("same: 27 of 27 keys")


def test_keys_of_fields_that_only_the_program_knows(tmp_path: Path) -> None:
    told = f"row POS\ntPOS_embed {'1' * 16} f32[2]\ntPOS_l0_mine {'2' * 16} f32[2]\n{ZEROS}ok\n"
    path = tmp_path / "own.dump"
    spec = scripted(tmp_path, step=told)
    assert run_cli("dump", "--engine", spec, "-o", str(path), *SHORT).status == 0
    tags = [entry.key.tag for entry in read_dump(path).entries]
    assert tags[:3] == ["t3_embed", "t3_l0_mine", "t3_logits"]


def test_known_fields_that_were_not_asked_for_are_left_out(tmp_path: Path) -> None:
    told = f"row POS\ntPOS_l0_act {'2' * 16} f32[2]\n{ZEROS}ok\n"
    path = tmp_path / "own.dump"
    spec = scripted(tmp_path, step=told)
    assert run_cli("dump", "--engine", spec, "-o", str(path), *SHORT).status == 0
    assert [entry.key.field for entry in read_dump(path).entries] == ["logits"] * 3


def test_line_mode_is_told_nothing_of_a_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it see what is left of a run in whose environment parity itself was started."""
    for name in ("PARITY_DUMP", "PARITY_TOKENS", "PARITY_PROTOCOL"):
        monkeypatch.setenv(name, "left over")
    told = tmp_path / "told"
    for name in ("PARITY_CACHE", "PARITY_CXX"):  # of the machine, not of a run
        monkeypatch.delenv(name, raising=False)
    spec = shell(f"env | grep ^PARITY_ > {told}; exit 1")
    assert stable(spec)[0] == 3
    assert told.read_text() == "PARITY_PROTOCOL=2\n"


# --- what is lacking: not run


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("exec:true", "reply to 'hello 2': ended with status 0 before its reply was complete: it"),
        (shell("exit 7"), "reply to 'hello 2': ended with status 7 before its reply was complete"),
        (shell("kill -SEGV $$"), "reply to 'hello 2': was ended by SIGSEGV before its reply was"),
        (shell("sleep 60", "@timeout=0.5"), "reply to 'hello 2': no end after 0.5 s: it said noth"),
        (shell("read x; echo hi; sleep 60"), "reply to 'hello 2', line 1: it does not belong here"),
        (shell("read x; echo error what?"), "error what?"),
        (shell("read x; echo protocol 1; echo ok"), "it speaks protocol 1"),
        (shell("yes", "@output=1M"), "reply to 'hello 2', line 1: it "),
    ],
)
def test_red_program_without_line_mode(spec: str, why: str) -> None:
    status, out, err = stable(spec)
    assert (status, out) == (3, "")
    assert err.startswith(f"parity: not run: {spec} has no line mode: {why}")
    assert err.endswith(OLD) or "\n        it said at the end:\n" in err
    result = run_cli("diff", *SHORT, "--ref", spec, "--dut", "cpu")
    assert (result.status, result.stdout) == (3, "")


@pytest.mark.parametrize(
    ("command", "offered", "lacking"),
    [
        ("isodiff", "", "capabilities 'rows', 'state', 'counters'"),
        ("isodiff", " rows rollback state", "capability 'counters'"),
        ("isodiff", " rollback state counters", "capability 'rows'"),
        ("rollback", " rows state counters", "capability 'rollback'"),
        ("rollback", " rollback rows weights", "capability 'state'"),
    ],
)
def test_red_capability_that_is_not_offered(
    tmp_path: Path, command: str, offered: str, lacking: str
) -> None:
    spec = scripted(tmp_path, hello=HELLO.format(offered))
    result = run_cli(command, "--engine", spec, "-q")
    told = f"not run: {spec} lacks the {lacking}, needed for {command}\n"
    assert said(result) == (3, told, "")


def test_stable_needs_no_capability(tmp_path: Path) -> None:
    spec = scripted(tmp_path, hello=HELLO.format(""))
    result = run_cli(*STABLE[:-1], "--engine", spec)
    assert result.status == 0
    assert "states not compared: the engine lacks the capability 'state'" in result.stdout


# --- what a program does wrong: refused


def test_red_newer_protocol(tmp_path: Path) -> None:
    spec = scripted(tmp_path, hello="protocol 3\nengine mine 9\ncapabilities\nok\n")
    assert stable(spec) == (
        2,
        "",
        f"parity: {spec}: speaks protocol 3; this parity knows 1 to 2\n"
        "  next: install a newer parity, or let the program answer hello with the lower version\n",
    )


_ROW = f"row POS\n{ZEROS}"
_RED = [
    ({"hello": "protocol 2\nok\n"}, "hello 2': it ends where engine NAME VERSION belongs"),
    ({"quit": "error no\n"}, "quit': error no"),
    ({"quit": [["exit", 3]]}, "quit': ended with status 3 before its reply was complete: it said"),
    ({"load": "error no such model\n"}, "load 5 moe-tiny seed 7': error no such model"),
    ({"load": "error unknown request\n"}, "load 5 moe-tiny seed 7': error unknown request"),
    ({"tap": "row 1\nok\n"}, "tap fnv1a64 nrm,kraw,knorm,k,ks,v,vs,qrope,attn,...', line 1"),
    ({"step": "ok\n"}, "step 0': it ends where row 3 belongs"),
    ({"step": "error tired\n"}, "step 0': error tired"),
    ({"step": f"{_ROW}row 4\n{ZEROS}ok\n"}, "step 0', line 3: more than the 1 rows asked for: 'r"),
    ({"step": f"row 9\n{ZEROS}ok\n"}, "step 0', line 1: row 3 belongs here: 'row 9'"),
    ({"step": "row POS\nlogits 00000000\nok\n"}, "step 0', line 2: 1 logits, not 512 logits: 'lo"),
    (
        {"step": f"row POS\ntPOS_logits {'1' * 16} f32[512]\n{ZEROS}ok\n"},
        f"step 0': t3_logits 1111111111111111 f32[512] is not the fnv1a64 of the logits given, "
        f"{ZERO_DIGEST} f32[512]",
    ),
    (
        {"step": f"row POS\ntPOS_logits {ZERO_DIGEST} f32[1,512]\n{ZEROS}ok\n"},
        f"step 0': t3_logits {ZERO_DIGEST} f32[1,512] is not the fnv1a64 of the logits given, ",
    ),
    ({"step": [["exit", 5]]}, "step 0': ended with status 5 before its reply was complete: it sai"),
    (
        {"step": [["log", "why\n"], ["kill", 11]]},
        "step 0': was ended by SIGSEGV before its reply w",
    ),
    (
        {"step": [["write", "row 3\n"], ["exit", 0]]},
        "step 0': ended with status 0 before its reply",
    ),
    (
        {"step": [["close", 1], ["sleep", 60]]},
        "step 0': closed stdout before its reply was",
    ),
    ({"step": [["sleep", 60]]}, "step 0': no end after 1 s: it said nothing"),
    ({"step": [["flood", 2]]}, "step 0': wrote more than 1,048,576 bytes: xxx"),
    ({"step": [["flood", 1]]}, "step 0': wrote more than 1,048,576 bytes: it said nothing"),
    ({"step": [["write", "hello there\n"]]}, "step 0', line 1: it does not belong here: 'hello th"),
    ({"state": "ok\n"}, "state': no part, not even lengths"),
    ({"prefill": f"row 0\n{ZEROS}ok\n"}, "prefill 1 2 3', line 1: row 2 belongs here: 'row 0'"),
]


@pytest.mark.parametrize(("rules", "told"), _RED, ids=range(len(_RED)))
def test_red_program_that_answers_wrongly(
    tmp_path: Path, rules: dict[str, object], told: str
) -> None:
    limits = "@output=1M@timeout=1" if "no end" in told else "@output=1M"
    spec = scripted(tmp_path, limits, **rules)
    status, out, err = stable(spec)
    assert (status, out) == (2, "")
    assert err.startswith(f"parity: {spec}: reply to '{told}")
    assert "\n  next: " in err


def test_red_child_that_holds_the_pipes(tmp_path: Path) -> None:
    number = tmp_path / "child"
    spec = scripted(tmp_path, step=[["child", str(number)], ["exit", 0]])
    status, out, err = stable(spec)
    assert (status, out) == (2, "")
    assert "reply to 'step 0': ended with status 0 before its reply was complete" in err
    assert gone(int(number.read_text()))


def test_red_program_with_fewer_logits_than_tokens(tmp_path: Path) -> None:
    spec = scripted(tmp_path, hello=HELLO.format("\nvocab 100"))
    assert stable(spec) == (
        2,
        "",
        f"parity: {spec}: has 100 logits, fewer than moe-tiny has tokens (512)\n"
        "  next: choose a --model with fewer tokens\n",
    )


def test_a_program_may_have_more_logits_than_the_model_has_tokens(tmp_path: Path) -> None:
    row = f"row POS\nlogits {'00000000' * 600}\nok\n"
    prefill = row.replace("POS", "2")
    spec = scripted(tmp_path, hello=HELLO.format("\nvocab 600"), step=row, prefill=prefill)
    assert stable(spec)[0] == 0


def test_red_program_that_says_another_hello(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    first = HELLO.format("").replace("\n", "\\n")
    script = (
        f"read x; test -e {mark} && printf '{first.replace('scripted 1', 'other 2')}' "
        f"|| printf '{first}'; : > {mark}; while read x; do echo ok; "
        'test "$x" = quit && exit 0; done'
    )
    spec = shell(script)
    status, out, err = stable(spec)
    assert (status, out) == (2, "")
    assert err == f"parity: {spec}: answers hello in another way than before\n{CHECK}"


def test_red_program_that_ends_badly_after_quit(tmp_path: Path) -> None:
    script = f"while read x; do printf '{HELLO.format('')!s}'; read x; echo ok; exit 6; done"
    spec = shell(script.replace("\n", "\\n"))
    status, out, err = stable(spec)
    assert (status, out) == (2, "")
    assert err.startswith(f"parity: {spec}: ended with status 6 after quit: it said nothing\n")


def test_weights_are_told_and_compared(tmp_path: Path) -> None:
    hello, told = HELLO.format(" weights"), "weight a f32[1] {}\nok\n"
    spec = scripted(tmp_path, hello=hello, weights=told.format("1" * 16))
    path = tmp_path / "w.dump"
    assert run_cli("dump", "--engine", spec, "-o", str(path), *SHORT).status == 0
    first = read_dump(path).header["weights"]
    spec = scripted(tmp_path, hello=hello, weights=told.format("2" * 16))
    assert run_cli("dump", "--engine", spec, "-o", str(path), *SHORT, "--force").status == 0
    assert len(first) == 16
    assert read_dump(path).header["weights"] != first


def test_red_weights_that_are_other_ones_when_opened_anew(tmp_path: Path) -> None:
    count = tmp_path / "count"
    hello = HELLO.format(" weights").replace("\n", "\\n")
    zeros = f"row %d\\nlogits {'00000000' * VOCAB}\\nok\\n"
    script = f"""
    echo >> {count}; n=$(wc -l < {count}); pos=0
    while read word rest; do
      case $word in
        hello) printf '{hello}' ;;
        weights) printf 'weight a f32[1] 000000000000000%d\\nok\\n' $n ;;
        step) printf '{zeros}' $pos; pos=$((pos + 1)) ;;
        prefill) pos=3; printf '{zeros}' 2 ;;
        reset) pos=0; echo ok ;;
        quit) echo ok; exit 0 ;;
        *) echo ok ;;
      esac
    done"""
    spec, path = shell(script), tmp_path / "tree.json"
    result = run_cli(*STABLE, "--engine", spec, "--json", str(path))
    assert (result.status, result.stderr) == (1, "")
    tree = Tree.from_json(path.read_text())
    assert (tree.verdict, tree.reason) == (
        "unstable",
        "not repeatable, first at weight a in run 2",
    )


@pytest.mark.parametrize("command", ["isodiff", "rollback", "stable", "dump"])
def test_red_file_where_an_engine_belongs(tmp_path: Path, command: str) -> None:
    words = ["-o", str(tmp_path / "x.dump")] if command == "dump" else []
    assert said(run_cli(command, "--engine", "a.dump", *words)) == (
        2,
        "",
        "parity: --engine a.dump: not an engine\n  next: parity engines lists them\n",
    )


def test_red_two_programs_have_no_digest_to_compare() -> None:
    result = run_cli("digest", EXAMPLE, "--against", f"exec:{sys.executable}")
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith("parity: both sides run here\n")


def test_ctrl_c_ends_the_program_and_keeps_the_steps(tmp_path: Path) -> None:
    """The third step does not end: the dump holds two, marked partial, and nobody is left."""
    told, path = tmp_path / "number", tmp_path / "run.dump"
    zeros = f"row %d\\nlogits {'00000000' * VOCAB}\\nok\\n"
    hello = HELLO.format("").replace("\n", "\\n")
    script = f"""
    while read word rest; do
      case $word in
        hello) printf '{hello}' ;;
        prefill) pos=3; printf '{zeros}' 2 ;;
        step) test $pos = 5 && echo $$ > {told}.part && mv {told}.part {told} && sleep 600
          printf '{zeros}' $pos; pos=$((pos + 1)) ;;
        quit) echo ok; exit 0 ;;
        *) echo ok ;;
      esac
    done"""
    words = ["dump", "--engine", shell(script), "-o", str(path), *SHORT]
    parity = subprocess.Popen(
        [sys.executable, "-m", "parity", *words],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + PATIENCE
        while not told.exists() and parity.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        parity.send_signal(signal.SIGINT)
        _, err = parity.communicate(timeout=PATIENCE)
    finally:
        parity.kill()
        parity.wait()
    kept = f"2 keys written to {path}, marked partial\n"
    assert (parity.returncode, err) == (2, f"{kept}parity: interrupted\n")
    assert read_dump(path).header["partial"] == "interrupted at t5"
    assert gone(int(told.read_text()))
