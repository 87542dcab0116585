"""parity.spec: what a side is, as typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.errors import InputError
from parity.spec import EngineSpec, FileSpec, ProgramSpec, parse_spec

INSTALLED = ("cpu", "cuda", "emu", "my-engine")


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("cpu", EngineSpec("cpu", "cpu")),
        ("cuda:fast", EngineSpec("cuda:fast", "cuda", "fast")),
        (
            "cuda:exact+libm_exp",
            EngineSpec("cuda:exact+libm_exp", "cuda", "exact", frozenset({"libm_exp"})),
        ),
        ("cuda+libm_exp", EngineSpec("cuda+libm_exp", "cuda", "", frozenset({"libm_exp"}))),
        (
            "cuda:fast-two_pass-fma",
            EngineSpec(
                "cuda:fast-two_pass-fma",
                *("cuda", "fast", frozenset(), frozenset({"two_pass", "fma"})),
            ),
        ),
        (
            "cuda:fast+rsqrt-fma",
            EngineSpec(
                "cuda:fast+rsqrt-fma",
                *("cuda", "fast", frozenset({"rsqrt"}), frozenset({"fma"})),
            ),
        ),
        ("cuda-fma", EngineSpec("cuda-fma", "cuda", "", frozenset(), frozenset({"fma"}))),
        ("emu@shuffled=7", EngineSpec("emu@shuffled=7", "emu", options={"shuffled": "7"})),
        (
            "emu:exact@descending@threads=2",
            EngineSpec(
                "emu:exact@descending@threads=2",
                *("emu", "exact"),
                options={"descending": "", "threads": "2"},
            ),
        ),
        ("emu@text=a=b", EngineSpec("emu@text=a=b", "emu", options={"text": "a=b"})),
        ("my-engine", EngineSpec("my-engine", "my-engine")),
        ("my-engine+x", EngineSpec("my-engine+x", "my-engine", plus=frozenset({"x"}))),
        ("pkg.mod:Mine", EngineSpec("pkg.mod:Mine", "pkg.mod:Mine", foreign=True)),
        (
            "mod:Mine:fast+x@k=v",
            EngineSpec(
                "mod:Mine:fast+x@k=v",
                *("mod:Mine", "fast", frozenset({"x"}), frozenset(), {"k": "v"}, True),
            ),
        ),
        ("run.dump", FileSpec("run.dump", Path("run.dump"))),
        ("run.txt", FileSpec("run.txt", Path("run.txt"))),
        ("run.npz", FileSpec("run.npz", Path("run.npz"))),
        ("run.safetensors", FileSpec("run.safetensors", Path("run.safetensors"))),
        ("./cpu", FileSpec("./cpu", Path("cpu"))),
        ("exec:./run --fast", ProgramSpec("exec:./run --fast", ("./run", "--fast"))),
        ("exec:sh -c 'a b'", ProgramSpec("exec:sh -c 'a b'", ("sh", "-c", "a b"))),
        ("exec:a:b@c=d", ProgramSpec("exec:a:b@c=d", ("a:b@c=d",))),
        ("exec@timeout=1.5:a", ProgramSpec("exec@timeout=1.5:a", ("a",), 1.5)),
        ("exec@output=64M:a", ProgramSpec("exec@output=64M:a", ("a",), output=1 << 26)),
        (
            "exec@output=7@timeout=60:a b",
            ProgramSpec("exec@output=7@timeout=60:a b", ("a", "b"), 60.0, 7),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_side_as_typed(text: str, spec: EngineSpec | FileSpec | ProgramSpec) -> None:
    assert parse_spec(text, INSTALLED) == spec


def test_existing_file_needs_no_suffix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").write_text("")
    monkeypatch.chdir(tmp_path)
    assert parse_spec("kept", INSTALLED) == FileSpec("kept", Path("kept"))
    (tmp_path / "cpu").write_text("")
    assert isinstance(parse_spec("cpu", INSTALLED), EngineSpec)


KINDS = "a file ends in .dump or .txt; a program is exec:COMMAND"
LISTED = "engines: cpu, cuda, emu, my-engine"


@pytest.mark.parametrize(
    ("text", "message", "next_step"),
    [
        (
            "emuu",
            "'emuu' is no engine, no dump file and no program",
            f"did you mean emu? {LISTED}; {KINDS}",
        ),
        (
            "cud+libm_exp",
            "'cud+libm_exp' is no engine, no dump file and no program",
            f"did you mean cuda? {LISTED}; {KINDS}",
        ),
        ("", "'' is no engine, no dump file and no program", f"{LISTED}; {KINDS}"),
        ("-", "'-' is no engine, no dump file and no program", f"{LISTED}; {KINDS}"),
        (
            "cuda:",
            "'cuda:': ':' is not a tier with variants",
            "write cuda:TIER+VARIANT or cuda:TIER-VARIANT",
        ),
        (
            "cuda:exact+",
            "'cuda:exact+': ':exact+' is not a tier with variants",
            "write cuda:TIER+VARIANT or cuda:TIER-VARIANT",
        ),
        (
            "cuda:fast fma",
            "'cuda:fast fma': ':fast fma' is not a tier with variants",
            "write cuda:TIER+VARIANT or cuda:TIER-VARIANT",
        ),
        (
            "mod:Mine:",
            "'mod:Mine:': ':' is not a tier with variants",
            "write mod:Mine:TIER+VARIANT or mod:Mine:TIER-VARIANT",
        ),
        ("cuda+fma-fma", "'cuda+fma-fma': fma is put in and taken out", "name it once"),
        ("emu@", "'emu@': an option without a name", "write @NAME=VALUE, each name once"),
        ("emu@=7", "'emu@=7': an option without a name", "write @NAME=VALUE, each name once"),
        (
            "emu@a=1@a=2",
            "'emu@a=1@a=2': the option a stands twice",
            "write @NAME=VALUE, each name once",
        ),
        ("exec:", "exec: names no program", "write exec:'./engine --flag'"),
        ("exec:  ", "exec: names no program", "write exec:'./engine --flag'"),
        ("exec@timeout=5", "exec@timeout=5 names no program", "write exec:'./engine --flag'"),
        (
            "exec@timeout=1@timeout=2:a",
            "'exec@timeout=1@timeout=2:a': the option timeout stands twice",
            "write @NAME=VALUE, each name once",
        ),
        ("exec:'a", "exec:'a: no closing quotation", "close the quote inside the command"),
    ],
)
def test_red_side_that_is_nothing(text: str, message: str, next_step: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_spec(text, INSTALLED)
    assert (caught.value.message, caught.value.next_step) == (message, next_step)


@pytest.mark.parametrize("value", ["", "0", "-1", "inf", "1e3", "1 ", "0x1"])
def test_red_time_of_a_program(value: str) -> None:
    text = f"exec@timeout={value}:a"
    with pytest.raises(InputError) as caught:
        parse_spec(text, INSTALLED)
    assert caught.value.message == f"{text!r}: {value!r} is no time in seconds"
    assert caught.value.next_step == "write exec@timeout=60:..."


@pytest.mark.parametrize("value", ["", "0", "-1", "1.5G", "1g", "M", "01"])
def test_red_output_of_a_program(value: str) -> None:
    text = f"exec@output={value}:a"
    with pytest.raises(InputError) as caught:
        parse_spec(text, INSTALLED)
    assert caught.value.message == f"{text!r}: {value!r} is no number of bytes"
    assert caught.value.next_step == "write exec@output=64M:..."


def test_red_option_that_programs_do_not_have() -> None:
    with pytest.raises(InputError) as caught:
        parse_spec("exec@time=5:a", INSTALLED)
    assert caught.value.message == "'exec@time=5:a': exec has no option @time"
    assert caught.value.next_step == "options: @timeout, @output"


def test_red_nothing_installed() -> None:
    with pytest.raises(InputError) as caught:
        parse_spec("cpu", ())
    assert caught.value.next_step.startswith("no engine: install parity first: pip install -e .")


def test_red_name_too_long_for_a_file() -> None:
    with pytest.raises(InputError, match="is no engine, no dump file and no program"):
        parse_spec("x" * 5000, INSTALLED)
