"""Sides that are programs (exec:) and engines with settings."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from parity.cli.options import make_run
from parity.dumps.reader import read_dump
from parity.errors import InputError
from parity.program.dump_mode import program_environment
from parity.progress import Progress
from parity.registry import ENGINES, plugins
from parity.runs.sides import open_side
from parity.spec import EngineSpec, parse_spec
from parity.variants import TIERS
from parity_cpu.engine import Engine
from tests.cli.running import ENGINES as FAULTY
from tests.cli.running import SHORT, diff, said, written_dump
from tests.cli_runner import run_cli

ROOT = Path(__file__).parents[2]
RUN_IT = "  next: run it by itself, with PARITY_DUMP set to a file name\n"

# What a user would write: read what parity tells, run the engine, write the dump it asks for.
PROGRAM = """\
import os
from pathlib import Path

from parity.dump import Dump
from parity.dumps.writer import write_dump
from parity.fnv import BASES
from parity.model.model import synthetic
from parity.protocol import EngineSettings, Plan
from parity_cpu import Engine

name, seed = os.environ["PARITY_MODEL"].split(" seed ")
tokens = [int(token) for token in os.environ["PARITY_TOKENS"].split(",")]
prefill = int(os.environ["PARITY_PREFILL"])
assert len(tokens) == prefill + int(os.environ["PARITY_N"])
fields = os.environ["PARITY_FIELDS"].split(",")
plan = Plan(fields, basis=BASES[os.environ["PARITY_HASH"]])
engine = Engine(EngineSettings())
engine.load(synthetic(name, int(seed)), len(tokens))
dumped = plan if os.environ["PARITY_DUMP_PREFILL"] == "1" else None
steps = engine.prefill(tokens[:prefill], dumped) if dumped else []
if not dumped:
    engine.prefill(tokens[:prefill])
steps += [engine.step(token, plan) for token in tokens[prefill:]]
entries = [entry for step in steps for entry in step.entries]
header = {"hash": os.environ["PARITY_HASH"], "engine": "program"}
write_dump(Dump(header, {"": entries}), Path(os.environ["PARITY_DUMP"]))
print("a program may print what it likes")
"""


def shell(script: str) -> str:
    """Spec of a program that is one line of shell."""
    return f"exec:sh -c {shlex.quote(script)}"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Spec of PROGRAM."""
    path = tmp_path / "engine.py"
    path.write_text(PROGRAM)
    paths = [ROOT, ROOT / "engines", os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
    return f"exec:{sys.executable} {path}"


def test_program_that_runs_the_engine_is_the_same(tmp_path: Path, program: str) -> None:
    options = ("--fields", "+topk", "--dump-prefill", "--hash", "kestrel-fnv")
    status, tree = diff(tmp_path, "--ref", "cpu", "--dut", program, *options)
    assert (status, tree.verdict) == (0, "same")
    assert tree.counts.same == tree.counts.total == 6 * (46 + 4)
    assert tree.control is not None
    assert (tree.control.kind, tree.control.fired) == ("dump level", True)
    assert tree.dut["engine"] == "program"
    assert tree.dut["spec"] == program


def test_red_program_with_another_digit(tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    entry = read_dump(path).entries[60]
    digit = "0" if entry.value_text()[0] != "0" else "1"
    changed = path.read_text().replace(entry.value_text(), digit + entry.value_text()[1:])
    path.write_text(changed)
    copy = shell(f'cp {path} "$PARITY_DUMP"')
    status, tree = diff(tmp_path, "--ref", "cpu", "--dut", copy)
    assert (status, tree.verdict, tree.first) == (1, "diverged", entry.key.tag)
    assert (tree.counts.differ, tree.counts.same) == (1, 137)


def test_program_is_told_of_the_run(tmp_path: Path) -> None:
    told = tmp_path / "told"
    keys = "DUMP|MODEL|TOKENS|PREFILL|N|FIELDS|HASH|DUMP_PREFILL|PROTOCOL"
    tell = shell(f"env | grep -E '^PARITY_({keys})=' | sort > {told}; cat >> {told}")
    result = run_cli("diff", *SHORT, "--ref", "cpu", "--dut", tell, "--fields", "+ffn")
    assert result.status == 3
    lines = told.read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert Path(found.pop("PARITY_DUMP")).name == "program.dump"
    assert found.pop("PARITY_FIELDS").split(",")[-3:] == ["down", "final_normed", "logits"]
    assert found == {
        "PARITY_MODEL": "moe-tiny seed 7",
        "PARITY_TOKENS": "1,2,3,482,418,431",
        "PARITY_PREFILL": "3",
        "PARITY_N": "3",
        "PARITY_HASH": "fnv1a64",
        "PARITY_DUMP_PREFILL": "0",
        "PARITY_PROTOCOL": "2",
    }


@pytest.mark.parametrize(
    ("script", "status", "message"),
    [
        ("exit 4", 2, f"ended with status 4: it said nothing\n{RUN_IT}"),
        ("echo why >&2; exit 4", 2, f"ended with status 4: why\n{RUN_IT}"),
        (
            "echo one; echo two; exit 4",
            2,
            f"ended with status 4: two\n{RUN_IT}"
            "        it said at the end:\n        one\n        two\n",
        ),
        (
            r"printf '\033[31m\377' >&2; exit 4",
            2,
            "ended with status 4: \\x1b[31m\ufffd\n" + RUN_IT,
        ),
        ("kill -9 $$", 2, f"was ended by SIGKILL: it said nothing\n{RUN_IT}"),
        (
            'mkdir "$PARITY_DUMP"',
            2,
            "its dump cannot be read: Is a directory\n"
            "  next: let it write a plain file under the name in PARITY_DUMP\n",
        ),
    ],
)
def test_red_program_that_fails(script: str, status: int, message: str) -> None:
    spec = shell(script)
    result = run_cli("diff", *SHORT, "--ref", "cpu", "--dut", spec)
    assert said(result) == (status, "", f"parity: {spec}: {message}")


def test_red_program_that_writes_nothing() -> None:
    result = run_cli("diff", *SHORT, "--ref", "cpu", "--dut", "exec:true")
    assert said(result) == (
        3,
        "",
        "parity: not run: exec:true: wrote no dump\n"
        "  next: let it write the file named by PARITY_DUMP\n",
    )


def test_red_program_that_writes_an_empty_file() -> None:
    result = run_cli("diff", *SHORT, "--ref", "cpu", "--dut", shell(': > "$PARITY_DUMP"'), "-q")
    assert said(result) == (3, "not run: nothing compared: no keys in dut\n", "")


def test_red_program_that_writes_garbage_is_named_with_the_line() -> None:
    spec = shell('printf "# engine x\\ngarbage\\n" > "$PARITY_DUMP"')
    result = run_cli("diff", *SHORT, "--ref", "cpu", "--dut", spec)
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith(f"parity: {spec} line 2: not a key: 'garbage'\n  next: ")


@pytest.mark.parametrize("command", ["/nonexistent/engine --flag", "no-such-program-here"])
def test_red_program_that_cannot_be_started(command: str) -> None:
    result = run_cli("diff", *SHORT, "--ref", "cpu", "--dut", f"exec:{command}")
    assert said(result) == (
        2,
        "",
        f"parity: exec:{command}: cannot be started: No such file or directory\n"
        f"  next: check the path of {command.split()[0]}\n",
    )


def test_red_program_as_ref_that_only_writes_dumps() -> None:
    result = run_cli("diff", *SHORT, "--ref", "exec:true", "--dut", "cpu")
    assert said(result) == (
        3,
        "",
        "parity: not run: exec:true has no line mode: reply to 'hello 2': ended with status 0 "
        "before its reply was complete: it said nothing\n"
        "  next: it can be the dut of parity diff as it is; docs/exec.md says what line mode is\n",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--bisect",), "--bisect needs two engines\n  next: name engines on both sides\n"),
        (
            ("--prefill", "ref"),
            "--prefill ref needs two engines\n  next: name engines on both sides\n",
        ),
        (
            ("--tokens-from", "own"),
            "--tokens-from own: exec:true is told the ref's tokens\n  next: leave the option out\n",
        ),
    ],
)
def test_red_option_that_a_program_cannot_follow(options: tuple[str, ...], message: str) -> None:
    result = run_cli("diff", *SHORT, "--ref", "cpu", "--dut", "exec:true", *options)
    assert said(result) == (2, "", f"parity: {message}")


def test_program_is_told_that_the_prompt_is_dumped(tmp_path: Path) -> None:
    run = make_run(**RUN, dump_prefill=True)
    told = program_environment(run, [5, 6], tmp_path / "d")
    assert (told["PARITY_TOKENS"], told["PARITY_DUMP_PREFILL"]) == ("1,2,5,6", "1")
    assert set(told) == {f"PARITY_{name}" for name in NAMES}


NAMES = ("DUMP", "MODEL", "TOKENS", "PREFILL", "N", "FIELDS", "HASH", "DUMP_PREFILL", "PROTOCOL")
RUN = {
    **{"model": "moe-tiny", "weights": "q4", "seed": 7, "tokens": "1,2", "n": 2},
    **{"fields": "", "hash_name": "fnv1a64"},
}


# Tier, variants and options of an engine.


def opened(text: str) -> Engine:
    """The engine of a spec."""
    spec = parse_spec(text, plugins(ENGINES))
    assert isinstance(spec, EngineSpec)
    run = make_run(**RUN, dump_prefill=False)
    engine = open_side("dut", spec, run, Progress(quiet=True)).engine
    assert isinstance(engine, Engine)
    return engine


def test_engine_gets_tier_variants_and_options() -> None:
    assert (opened("cpu").settings.tier, opened("cpu").settings.variants) == ("exact", frozenset())
    assert opened("cpu+fma").settings.variants == {"fma"}
    fast = opened("cpu:fast-fma+exp_via_double-libm_exp").settings
    assert fast.variants == TIERS["fast"] - {"fma", "libm_exp"} | {"exp_via_double"}
    assert opened(f"{FAULTY}:Moved@key=t3_logits").settings.options == {"key": "t3_logits"}
    assert opened(f"{FAULTY}:Moved:fast").settings.variants == TIERS["fast"]


def test_engine_with_a_tier_of_its_own() -> None:
    assert opened(f"{FAULTY}:OwnTier").settings.tier == "plain"
    assert opened(f"{FAULTY}:OwnTier:plain").settings.tier == "plain"


@pytest.mark.parametrize(
    ("text", "message", "next_step"),
    [
        ("cpu:quick", "cpu:quick: engine cpu has no tier 'quick'", "tiers: exact, fast"),
        ("cpu-fma", "cpu-fma: tier exact has no fma to take out", "leave it out"),
        (
            f"{FAULTY}:OwnTier:exact",
            f"{FAULTY}:OwnTier:exact: engine cpu has no tier 'exact'",
            "tiers: plain",
        ),
        (
            f"{FAULTY}:OwnTier-fma",
            f"{FAULTY}:OwnTier-fma: tier plain has no fma to take out",
            "leave it out",
        ),
        (
            f"{FAULTY}:OwnTier+fma",
            f"{FAULTY}:OwnTier+fma: engine cpu has no variant 'fma'",
            "variants: none",
        ),
    ],
)
def test_red_tier_or_variant_that_is_not_there(text: str, message: str, next_step: str) -> None:
    with pytest.raises(InputError) as caught:
        opened(text)
    assert (caught.value.message, caught.value.next_step) == (message, next_step)
