"""Model files for tests of the command line: exported presets, whole or with a flipped bit."""

from __future__ import annotations

from pathlib import Path

from parity.model.gguf import export_gguf
from parity.model.gguf.reading import read_gguf
from parity.model.model import synthetic
from parity.tree import Tree
from tests.cli_runner import Result, run_cli

SHORT = ("--tokens", "1,2,3", "--n", "2")
V_PROJ = "blk.1.attn_v.weight"
WORDS = {"the": 3, "cat": 5, "sat": 8, "[UNK]": 0}


def gguf(folder: Path, preset: str = "moe-tiny", name: str = "a b.gguf") -> Path:
    """A preset as a file; the name has a blank, for what is to be pasted into a shell."""
    path = folder / name
    export_gguf(synthetic(preset, 7), path)
    return path


def flipped(path: Path, tensor: str, bit: int, name: str = "") -> Path:
    """A copy with one bit of the first block of ``tensor`` flipped, counted from its first byte;
    beside it, or in a folder of its own under the same name."""
    begin = read_gguf(path).tensors[tensor].begin
    data = bytearray(path.read_bytes())
    data[begin + bit // 8] ^= 1 << bit % 8
    target = path.with_name(name) if name else path.parent / "other" / path.name
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(data)
    return target


def tokenizer(folder: Path) -> Path:
    """A folder with a tokenizer.json of a few words, one id each."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = {at: word for word, at in WORDS.items()}
    vocab = {names.get(at, f"w{at}"): at for at in range(9)}
    made = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    folder.mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return folder


def tree_of(result: Result, path: Path) -> Tree:
    """The tree a command wrote."""
    assert path.exists(), result.stderr
    return Tree.from_json(path.read_text())


def dump(path: Path, model: Path | str, *words: str) -> Path:
    """A dump of the short run of ``model`` by cpu."""
    result = run_cli("dump", "--model", str(model), *SHORT, "-o", str(path), *words)
    assert result.status == 0, result.stderr
    return path
