"""Model files in every command that takes a model: what runs, is recorded, and is reported."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest

import parity
from parity.dumps.reader import read_dump
from parity.errors import InputError
from parity.explain.repro import RECORD
from parity.model.model import synthetic
from tests.cli.model_files import SHORT, V_PROJ, dump, flipped, gguf, tokenizer, tree_of
from tests.cli_runner import run_cli
from tests.core.gguf_files import dense_content, file_bytes, random_tensor
from tests.core.test_tokenizer import oracle, values_of
from tests.hf_folders import write_model
from tests.programs.specs import ROOT, shell

STEP_KEYS = {"moe-tiny": 46, "dense-tiny": 46, "hybrid-tiny": 100}
FAULTS = "tests.red.faults"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """moe-tiny seed 7 as a file."""
    return gguf(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def other(file: Path) -> Path:
    """The same name and header; one mantissa bit of the first scale of layer 1's V projection."""
    return flipped(file, V_PROJ, 9)


# --- the same bits as the preset the file was made of ---------------------------------------------


@pytest.mark.parametrize("preset", STEP_KEYS)
def test_a_file_has_the_bits_of_its_preset(tmp_path: Path, preset: str) -> None:
    ref = dump(tmp_path / "ref.dump", preset)
    dut = dump(tmp_path / "dut.dump", gguf(tmp_path, preset))
    path = tmp_path / "run.json"
    result = run_cli("compare", str(ref), str(dut), "--json", str(path))
    tree = tree_of(result, path)
    assert (result.status, tree.verdict) == (0, "same")
    assert tree.counts.same == 2 * STEP_KEYS[preset]


@pytest.mark.parametrize("preset", STEP_KEYS)
def test_cpu_and_emu_agree_on_a_file(tmp_path: Path, preset: str) -> None:
    file, path = gguf(tmp_path, preset), tmp_path / "run.json"
    words = ("diff", "--dut", "emu", "--model", str(file), *SHORT)
    result = run_cli(*words, "--json", str(path))
    tree = tree_of(result, path)
    assert (result.status, tree.verdict, str(tree.level)) == (0, "same", "bit")
    assert tree.counts.same == 2 * STEP_KEYS[preset]
    assert tree.ref["weights"] == tree.dut["weights"]
    assert tree.run["model"] == "a b.gguf"
    assert tree.control is not None
    assert tree.control.fired
    assert "model    a b.gguf, weights digest equal on both sides" in run_cli(*words).stdout


def test_the_header_says_what_was_loaded(file: Path, tmp_path: Path) -> None:
    header = read_dump(dump(tmp_path / "run.dump", file)).header
    assert header["model"] == "a b.gguf"
    assert (header["source"], header["stored"]) == ("gguf", "30 Q4_0, 21 F32")
    assert header["kv"] == "int8"
    assert len(header["weights"]) == 16
    assert header["tokens"].startswith("1,2,3,")
    assert "tokenizer" not in header
    preset = read_dump(dump(tmp_path / "preset.dump", "moe-tiny")).header
    assert {"source", "stored"} & preset.keys() == set()


# --- a text as the prompt -------------------------------------------------------------------------


def test_a_text_prompt_is_recorded_by_its_ids(file: Path, tmp_path: Path) -> None:
    words = ("--model", str(file), "--tokenizer", str(tokenizer(tmp_path / "words")), "--n", "1")
    (tmp_path / "prompt.txt").write_text("the cat\nsat dog")
    given = {
        "text": ("--prompt", "the cat sat dog"),
        "file": ("--prompt-file", str(tmp_path / "prompt.txt")),
    }
    for name, options in given.items():
        path = tmp_path / f"{name}.dump"
        assert run_cli("dump", *words, *options, "-o", str(path)).status == 0
        header = read_dump(path).header
        assert header["tokens"].split(",")[:4] == ["3", "5", "8", "0"]
        assert header["prefill"] == "4 own"
        assert len(header["tokenizer"]) == 64
    same = run_cli("compare", str(tmp_path / "text.dump"), str(tmp_path / "file.dump"))
    assert same.status == 0


def test_a_preset_takes_a_text_with_another_tokenizer(tmp_path: Path) -> None:
    words = ("--prompt", "the cat sat", "--tokenizer", str(tokenizer(tmp_path / "words")))
    path = tmp_path / "run.json"
    result = run_cli("diff", "--dut", "cpu", *words, "--n", "1", "--json", str(path))
    assert result.status == 0
    assert tree_of(result, path).run["prompt"] == "3,5,8"


def test_a_gguf_file_reads_text_with_its_own_tokenizer(tmp_path: Path) -> None:
    wanted, values = oracle("qwen2"), values_of("qwen2", padding=40)
    vocab = len(values["tokenizer.ggml.tokens"])
    ends = {name: random_tensor(name, (vocab, 32)) for name in ("token_embd", "output")}
    content = dense_content().values_with(values)
    content = content.tensors_with({f"{name}.weight": one for name, one in ends.items()})
    file, path = tmp_path / "own.gguf", tmp_path / "run.dump"
    file.write_bytes(file_bytes(content))
    words = ("dump", "--model", str(file), "--force", "-o", str(path), "--n")
    for text, ids in zip(wanted["texts"], wanted["ids"], strict=True):
        assert run_cli(*words, "1", "--prompt", text).status == 0
        header = read_dump(path).header
        count = int(header["prefill"].split()[0])
        assert [int(one) for one in header["tokens"].split(",")[:count]] == ids
    assert run_cli(*words, "24").status == 0
    tokens = read_dump(path).header["tokens"].split(",")
    assert max(map(int, tokens)) < wanted["length"] < vocab


def test_a_folder_reads_text_with_its_own_tokenizer(hf_folder: Path, tmp_path: Path) -> None:
    folder, path = tmp_path / "own", tmp_path / "run.dump"
    shutil.copytree(hf_folder, folder)
    tokenizer(folder)
    words = ("dump", "--model", str(folder), "--force", "-o", str(path), "--n", "8")
    assert run_cli(*words, "--prompt", "the cat sat").status == 0
    tokens = [int(one) for one in read_dump(path).header["tokens"].split(",")]
    assert tokens[:3] == [3, 5, 8]
    assert max(tokens) < 9  # 512 logits, 9 real ids


# --- red ------------------------------------------------------------------------------------------


def test_red_one_bit_of_a_file(file: Path, other: Path, tmp_path: Path) -> None:
    ref = dump(tmp_path / "ref.dump", file, "--dump-prefill")
    path = tmp_path / "run.json"
    words = ("diff", "--ref", str(ref), "--dut", "cpu", "--model", str(other), *SHORT)
    result = run_cli(*words, "--dump-prefill", "--json", str(path))
    tree = tree_of(result, path)
    assert (result.status, tree.verdict) == (1, "diverged")
    assert tree.first == "t0_l1_v"
    told = [note for note in tree.notes if note.startswith("weights differ: ref ")]
    assert told == [f"weights differ: ref {tree.ref['weights']} dut {tree.dut['weights']}"]
    same = run_cli(*words[:6], str(file), *SHORT, "--dump-prefill")
    assert (same.status, same.stdout.split()[0]) == (0, "SAME")


def test_other_weights_that_no_key_shows_stand_beside_the_verdict(
    file: Path, tmp_path: Path
) -> None:
    """Planted: a bit in the embedding of a token that the run has not. A dump has no weights to
    compare, only their digest: every key is equal, and the first line says the rest."""
    ref = dump(tmp_path / "ref.dump", file)
    unused = flipped(file, "token_embd.weight", 8 * 90 * 500 + 24)  # of row 500
    words = ("diff", "--ref", str(ref), "--dut", "cpu", *SHORT, "-q", "--model")
    assert "weights" not in run_cli(*words, str(file)).stdout
    result = run_cli(*words, str(unused))
    assert (result.status, result.stdout.split(":")[0]) == (0, "same")
    assert result.stdout.endswith(", weights digests differ\n")


def test_red_a_fault_on_a_file_names_the_line_that_makes_it_again(file: Path) -> None:
    words = ("diff", "--dut", f"{FAULTS}:Moved@key=t4_l1_attn", "--model", str(file), *SHORT)
    result = run_cli(*words)
    assert result.status == 1
    line = next(line.strip() for line in result.stdout.splitlines() if "parity diff" in line)
    assert line == shlex.join(["parity", *words])
    assert f"--model '{file}'" in line
    again = run_cli(*shlex.split(line)[1:])
    assert (again.status, again.stdout.splitlines()[0]) == (1, result.stdout.splitlines()[0])


# --- repro folders --------------------------------------------------------------------------------


def test_repro_of_a_file(
    file: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lost = tmp_path / "repro", tmp_path / "lost" / file.name
    lost.parent.mkdir()
    lost.write_bytes(file.read_bytes())
    monkeypatch.chdir(lost.parent)
    words = ("diff", "--dut", f"{FAULTS}:Moved@key=t4_l1_attn", "--model", file.name, *SHORT)
    assert run_cli(*words, "--repro", str(folder)).status == 1
    model = json.loads((folder / RECORD).read_text())["model"]
    assert (model["path"], model["weights"], model["label"]) == (str(lost), None, "a b.gguf")
    monkeypatch.chdir(tmp_path)
    again = run_cli("replay", str(folder))
    assert (again.status, again.stdout.split()[0]) == (1, "DIVERGED")
    lost.rename(tmp_path / "gone.gguf")
    result = run_cli("replay", str(folder))
    message = f"parity: {lost}: no such file or folder; the repro was written with a b.gguf there\n"
    assert (result.status, result.stderr) == (
        2,
        f"{message}  next: give --model FILE where it lies now\n",
    )
    assert run_cli("replay", str(folder), "--model", str(file)).status == 1
    wrong = run_cli("replay", str(folder), "--model", str(other))
    assert wrong.status == 2
    assert "the weights of a b.gguf have the digest " in wrong.stderr
    assert "next: give --model the file it was written with" in wrong.stderr


# --- programs -------------------------------------------------------------------------------------

SERVED = f"exec:{sys.executable} {ROOT / 'tests' / 'programs' / 'served.py'} parity_cpu:Engine"


def test_a_program_is_told_the_path_of_a_file(tmp_path: Path) -> None:
    file, path = gguf(tmp_path, name="two  blanks.gguf"), tmp_path / "run.json"
    words = ("diff", "--ref", SERVED, "--dut", "cpu", "--model", str(file), *SHORT)
    result = run_cli(*words, "--json", str(path))
    tree = tree_of(result, path)
    assert (result.status, tree.verdict, tree.counts.same) == (0, "same", 2 * 46)
    assert [note for note in tree.notes if note.startswith("model ")] == []


def test_a_program_that_writes_a_dump_is_told_the_path(file: Path, tmp_path: Path) -> None:
    path, seen = tmp_path / "run.json", tmp_path / "seen"
    program = shell(f'printf %s "$PARITY_MODEL" > {seen}; exit 3')
    words = ("diff", "--dut", program, "--model", str(file), *SHORT, "--json", str(path))
    assert run_cli(*words).status == 2
    assert seen.read_text() == str(file)


# --- folders --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hf_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """dense-tiny seed 7 with f32 matrices as a Hugging Face folder."""
    path = tmp_path_factory.mktemp("models") / "hf model"
    return write_model(path, synthetic("dense-tiny", 7, "f32"), "Qwen3ForCausalLM")


def test_a_folder_has_the_bits_of_its_preset(hf_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    ref = dump(tmp_path / "ref.dump", "dense-tiny", "--weights", "f32")
    dut = dump(tmp_path / "dut.dump", hf_folder)
    result = run_cli("compare", str(ref), str(dut), "--json", str(path))
    assert (result.status, tree_of(result, path).verdict) == (0, "same")
    header = read_dump(dut).header
    assert (header["model"], header["source"]) == ("hf model f32", "safetensors")
    assert header["kv"] == "f32"


def test_a_folder_quantised_at_load(hf_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    words = ("diff", "--dut", "emu", "--model", str(hf_folder), "--weights", "q4", *SHORT)
    result = run_cli(*words, "--json", str(path))
    tree = tree_of(result, path)
    assert (result.status, tree.verdict, tree.run["model"]) == (0, "same", "hf model q4")
    assert tree.ref["kv"] == "int8"


def test_repro_of_a_quantised_folder(hf_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "repro"
    words = ("diff", "--dut", f"{FAULTS}:Moved@key=t4_l1_attn", "--model", str(hf_folder))
    assert run_cli(*words, "--weights", "q4", *SHORT, "--repro", str(folder)).status == 1
    model = json.loads((folder / RECORD).read_text())["model"]
    assert (model["path"], model["weights"]) == (str(hf_folder), "q4")
    again = run_cli("replay", str(folder))
    assert (again.status, again.stdout.split()[0]) == (1, "DIVERGED")


def test_red_a_program_and_a_folder_quantised_at_load(hf_folder: Path) -> None:
    words = ("diff", "--ref", SERVED, "--dut", "cpu", "--model", str(hf_folder))
    result = run_cli(*words, "--weights", "q4", *SHORT)
    assert (result.status, result.stderr) == (
        2,
        "parity: --weights q4: a program is told the path of a model, not how to quantise it\n"
        "  next: leave --weights out, or give a GGUF file of Q4_0 matrices\n",
    )


# --- in Python ------------------------------------------------------------------------------------


def test_the_functions_take_files(file: Path, tmp_path: Path) -> None:
    words = tokenizer(tmp_path / "words")
    found = parity.diff("cpu", "cpu", model=file, prompt="the cat", tokenizer=words, n=1)
    assert found.same
    assert found.tree.run["prompt"] == "3,5"
    assert f"--model '{file}'" in found.tree.reproduce
    probe = parity.isodiff("cpu", m=2, pos=4, model=str(file), seeds=2, tokens=[1, 2])
    assert probe.verdict == "same"
    with pytest.raises(
        InputError, match=r"^weights q4: the matrices of .* stay as they are stored"
    ):
        parity.diff("cpu", "cpu", model=file, weights="q4")
