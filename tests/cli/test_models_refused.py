"""What is refused of model files and text prompts: message, status, nothing written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parity.dtypes import same_bits
from parity.errors import NotRunError
from parity.model import memory
from parity.model.memory import DEVICE, HOST, Room, check_rooms, state_bytes, weight_bytes
from parity.model.model import synthetic
from parity.model.opening import open_model
from tests.cli.model_files import gguf, tokenizer
from tests.cli.running import said
from tests.cli_runner import run_cli

IS = "a model is a .gguf file, or a folder with config.json and .safetensors"
LONG = "a" * 5000  # longer than any file's name
CPU = ("diff", "--dut", "cpu", "--n", "1")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, with one model file."""
    monkeypatch.chdir(tmp_path)
    return gguf(tmp_path, name="m.gguf")


@pytest.mark.parametrize(
    ("words", "message", "next_step"),
    [
        (("--model", "x.gguf"), "--model x.gguf: no such file or folder", IS),
        (("--model", "no/such"), "--model no/such: no such file or folder", IS),
        (("--model", f"{LONG}.gguf"), f"--model {LONG}.gguf: no such file or folder", IS),
        (("--model", "empty"), "--model empty: a folder without config.json", IS),
        (
            ("--model", "."),
            "--model .: a folder without config.json",
            "give one of its files: --model m.gguf",
        ),
        (
            ("--model", "line\nend.gguf"),
            r"--model 'line\nend.gguf': a line break or control character in its name",
            "give it another name",
        ),
        (("--model", "notes.bin"), "--model notes.bin: not a model file", IS),
        (
            ("--model", "blob"),
            "--model blob: not a model file",
            "it begins as a GGUF file does: give it a name that ends in .gguf",
        ),
        (
            ("--model", "a.safetensors"),
            "--model a.safetensors: one file of a folder",
            "give its folder: --model .",
        ),
        (
            ("--model", "m.gguf", "--weights", "f32"),
            "--weights f32: the matrices of m.gguf stay as they are stored",
            "leave --weights out",
        ),
        (
            ("--model", "m.gguf", "--prompt", "a", "--tokens", "1"),
            "--tokens with --prompt: both are the prompt",
            "give one of them",
        ),
        (
            ("--prompt", "a", "--prompt-file", "b"),
            "--prompt with --prompt-file: both are the prompt",
            "give one of them",
        ),
        (
            ("--tokenizer", "words"),
            "--tokenizer words: there is no text to encode",
            "give --prompt TEXT, or leave it out",
        ),
        (
            ("--prompt", "a"),
            "--prompt: moe-tiny seed 7 has no tokenizer",
            "give --tokenizer FOLDER, or token ids with --tokens",
        ),
        (
            ("--prompt-file", "none.txt", "--tokenizer", "words"),
            "--prompt-file none.txt: No such file or directory",
            "give a text file in UTF-8",
        ),
        (
            ("--prompt-file", "latin.txt", "--tokenizer", "words"),
            "--prompt-file latin.txt: byte 1 is no UTF-8",
            "give a text file in UTF-8",
        ),
        (
            ("--model", "m.gguf", "--json", "m.gguf"),
            "m.gguf: already taken by the input m.gguf",
            "give another file",
        ),
    ],
)
def test_red_refused(here: Path, words: tuple[str, ...], message: str, next_step: str) -> None:
    folder = here.parent
    (folder / "empty").mkdir()
    for name in ("notes.bin", "a.safetensors"):
        (folder / name).write_bytes(b"")
    (folder / "blob").write_bytes(here.read_bytes())
    (folder / "latin.txt").write_bytes(b"a\xe9")
    tokenizer(folder / "words")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = run_cli(*CPU, *words)
    assert said(result) == (2, "", f"parity: {message}\n  next: {next_step}\n")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.usefixtures("here")
def test_red_a_folder_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("closed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != "closed")
    message = "--model closed: cannot be read: Permission denied"
    told = f"parity: {message}\n  next: check the path\n"
    assert said(run_cli(*CPU, "--model", "closed")) == (2, "", told)


@pytest.mark.parametrize(
    "command",
    [
        ("diff", "--json"),
        ("stable", "--html"),
        ("isolate", "--csv"),
        ("isodiff", "--json"),
        ("rollback", "--junit"),
        ("conformance", "cpu", "--json"),
        ("gate", "--fast", "fma", "--json"),
        ("ladder", "--json"),
        ("doctor", "--json"),
        ("digest", "cpu", "--force", "-o"),
        ("dump", "--force", "-o"),
    ],
    ids=lambda command: command[0],
)
def test_red_a_report_over_the_model_file(here: Path, command: tuple[str, ...]) -> None:
    before = here.read_bytes()
    result = run_cli(*command, "m.gguf", "--model", "m.gguf")
    message = "m.gguf: already taken by the input m.gguf"
    assert said(result) == (2, "", f"parity: {message}\n  next: give another file\n")
    assert here.read_bytes() == before


@pytest.mark.parametrize("kind", ["gdn", "attn"])
@pytest.mark.usefixtures("here")
def test_red_synthetic_layers_of_a_file(kind: str) -> None:
    result = run_cli("isodiff", "--synthetic", kind, "--model", "m.gguf")
    message = f"--synthetic {kind}: m.gguf is a file, whose layers are as they are"
    next_step = "give --model hybrid-tiny or hybrid-64"
    assert said(result) == (2, "", f"parity: {message}\n  next: {next_step}\n")


@pytest.mark.usefixtures("here")
def test_red_an_unknown_model_says_what_there_is() -> None:
    result = run_cli(*CPU, "--model", "moe-tinny")
    message, next_step = result.stderr.splitlines()
    assert (result.status, message) == (2, "parity: unknown model 'moe-tinny'")
    assert next_step.endswith("; or a .gguf file, or a folder with config.json")


@pytest.mark.usefixtures("here")
def test_red_a_prompt_longer_than_the_context() -> None:
    ids = ",".join(["1"] * 2050)
    result = run_cli(*CPU, "--model", "m.gguf", "--tokens", ids)
    assert result.status == 2
    assert "position 2049 is past the KV cache of moe-tiny (2,048 positions)" in result.stderr


# --- memory ---------------------------------------------------------------------------------------


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of tensors that were read."""
    from parity.model.file_model import FileModel

    read: list[str] = []
    monkeypatch.setattr(FileModel, "tensor", lambda _self, name: read.append(name))
    return read


def free(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """So many bytes are free for cpu."""
    monkeypatch.setattr("parity_cpu.engine.Engine.room", lambda _self: Room(HOST, count))


@pytest.mark.parametrize(
    "command",
    [
        ("diff", "--dut", "cpu:fast"),
        ("diff", "--dut", "cpu:fast", "--bisect"),
        ("isolate", "--dut", "cpu:fast"),
        ("ladder", "--n", "4"),
        ("gate", "--engine", "cpu", "--fast", "cpu:fast", "--n", "4", "--m", "1,2"),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("here")
def test_red_two_sides_larger_than_memory(
    monkeypatch: pytest.MonkeyPatch, unread: list[str], command: tuple[str, ...]
) -> None:
    free(monkeypatch, 2_000_000)
    result = run_cli(*command, "--model", "m.gguf")
    assert said(result) == (
        3,
        "",
        "parity: not run: cpu and cpu:fast: m.gguf needs 2 x 1.4 MB = 2.8 MB of host memory (1.4 "
        "MB of weights, 0.1 MB of KV cache and state), 2.0 MB are free\n  next: one side fits: "
        "parity dump each, then parity compare; or the preset moe-tiny needs 1.4 MB\n",
    )
    assert unread == []


@pytest.mark.usefixtures("here")
def test_red_one_side_larger_than_memory(
    monkeypatch: pytest.MonkeyPatch, unread: list[str]
) -> None:
    free(monkeypatch, 1_400_000)
    result = run_cli("dump", "--model", "m.gguf", "-o", "run.dump")
    assert said(result) == (
        3,
        "",
        "parity: not run: cpu: m.gguf needs 1.4 MB of host memory (1.4 MB of weights, 0.1 MB of KV "
        "cache and state), 1.4 MB are free\n  next: the preset moe-tiny needs 1.4 MB\n",
    )
    assert unread == []
    assert not Path("run.dump").exists()


def test_red_places_are_added_up_apart() -> None:
    model = synthetic("moe-tiny", 7)
    needed = weight_bytes(model) + state_bytes(model.config, 36)
    host, device = Room(HOST, needed + 1), Room(DEVICE, needed + 1)
    check_rooms([("cpu", host), ("cuda", device)], model, 36)
    check_rooms([("cpu", Room(HOST, None)), ("emu", Room(HOST, None))], model, 36)
    with pytest.raises(NotRunError, match=r"^cpu and emu: moe-tiny needs 2 x .* of host memory"):
        check_rooms([("cpu", host), ("cuda", device), ("emu", host)], model, 36)
    with pytest.raises(NotRunError, match=r"^cuda: moe-tiny needs .* of device memory"):
        check_rooms([("cpu", host), ("cuda", Room(DEVICE, needed))], model, 36)


def test_what_is_free_counts_the_cache_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    (tmp_path / "meminfo").write_text("MemFree: 1 kB\nMemAvailable:   5000 kB\n")
    assert memory.free_bytes() == 5000 << 10
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("600\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 90\n")
    assert memory.free_bytes() == 5000 << 10
    (tmp_path / "memory.max").write_text("1000\n")
    assert memory.free_bytes() == 1000 - 600 + 90


# --- export ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message", "next_step"),
    [
        (("m.gguf",), "m.gguf: exists already", "give another name"),
        (("out.bin",), "out.bin: no name of a GGUF file", "write out.gguf"),
        (("out",), "out: no name of a GGUF file", "write out.gguf"),
        (
            ("no/out.gguf",),
            "no/out.gguf: cannot write: No such file or directory",
            "choose a place that can be written",
        ),
    ],
)
def test_red_export(here: Path, words: tuple[str, ...], message: str, next_step: str) -> None:
    before = here.read_bytes()
    result = run_cli("export", *words, "--model", "moe-tiny")
    assert said(result) == (2, "", f"parity: {message}\n  next: {next_step}\n")
    assert [path.name for path in here.parent.iterdir()] == ["m.gguf"]
    assert here.read_bytes() == before


def test_export(here: Path) -> None:
    result = run_cli("export", "out.gguf", "--model", "dense-tiny", "--seed", "3")
    size = Path("out.gguf").stat().st_size
    assert result.status == 0
    assert result.stdout.startswith("out.gguf  dense-tiny seed 3, 0.4 MB (")
    assert f"({size:,} bytes), " in result.stdout
    assert result.stdout.endswith(" GB/s\n")
    again = run_cli("export", "again.gguf", "--model", "out.gguf", "-q")
    assert said(again) == (0, "", "")
    assert here.exists()
    first, second = (open_model(name, seed=0) for name in ("out.gguf", "again.gguf"))
    names = list(first.names())
    assert names == list(second.names())
    assert all(same_bits(first.tensor(name), second.tensor(name)) for name in names)
