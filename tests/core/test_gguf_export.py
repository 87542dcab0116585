"""A preset as a GGUF file and back: the same tensors and keys; whole, new, or not at all."""

from __future__ import annotations

import resource
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parity.dump import Entry
from parity.errors import InputError, NotRunError
from parity.families import every_field
from parity.model.config import ModelConfig
from parity.model.file_model import FileModel
from parity.model.gguf import export, export_gguf, names, open_gguf
from parity.model.model import Model, SyntheticModel, synthetic
from parity.protocol import EngineSettings, Plan
from parity.registry import engine_class
from parity.status import ExitStatus

SMALL = {
    **{"dense-tiny": "qwen3", "moe-tiny": "qwen3moe", "moe-48": "qwen3moe"},
    **{"hybrid-tiny": "qwen35", "hybrid-64": "qwen35", "next-tiny": "qwen3next"},
}
SEED = 7


def exported(model: Model, path: Path, architecture: str = "") -> FileModel:
    export_gguf(model, path, architecture)
    return open_gguf(path)


def differing(ref: Model, dut: Model) -> list[str]:
    """Names of tensors that differ in dtype, shape or bytes, A_log and nA left out: one is stored
    in the place of the other."""
    ours = [name for name in ref.names() if not name.endswith(".a_log")]
    assert ours == [name for name in dut.names() if not name.endswith(".rates")]
    return [name for name in ours if not same_bits(ref.tensor(name), dut.tensor(name))]


def same_bits(ref: np.ndarray, dut: np.ndarray) -> bool:
    return (ref.dtype, ref.shape, ref.tobytes()) == (dut.dtype, dut.shape, dut.tobytes())


def keys(model: Model, tokens: int = 2) -> list[Entry]:
    """Every key of a few steps, all fields, by the cpu engine."""
    engine = engine_class("cpu")(EngineSettings())  # type: ignore[call-arg]
    engine.load(model, tokens)
    plan = Plan(every_field(model.config))
    return [entry for token in range(tokens) for entry in engine.step(token + 3, plan).entries]


@pytest.mark.parametrize("weights", ["q4", "f32"])
@pytest.mark.parametrize("name", SMALL)
def test_there_and_back(name: str, weights: str, tmp_path: Path) -> None:
    model = synthetic(name, SEED, weights)
    path = tmp_path / "model.gguf"
    assert export_gguf(model, path) == SMALL[name]
    found = open_gguf(path)
    assert differing(model, found) == []
    settled = {"weights": "file", "small_out": False, "kv_storage": model.config.kv}
    assert found.config == replace(model.config, **settled)


@pytest.mark.parametrize("name", ["dense-tiny", "moe-tiny", "hybrid-tiny", "next-tiny"])
def test_the_same_keys(name: str, tmp_path: Path) -> None:
    """Every field of every layer, nA included: the engine made it of A_log in the preset."""
    model = synthetic(name, SEED)
    ref, dut = keys(model), keys(exported(model, tmp_path / "model.gguf"))
    assert len(ref) > 50
    assert ref == dut


@pytest.mark.parametrize("name", ["hybrid-tiny", "next-tiny"])
def test_rates_are_what_the_engine_makes_of_a_log(name: str, tmp_path: Path) -> None:
    from parity_cpu.weights import rates

    model = synthetic(name, SEED)
    found = exported(model, tmp_path / "model.gguf")
    logs = [name for name in model.names() if name.endswith(".a_log")]
    assert len(logs) == 6
    for log in logs:
        assert same_bits(rates(model.tensor(log)), found.tensor(log.replace("a_log", "rates")))


def test_experts_of_a_hybrid_in_either_architecture(tmp_path: Path) -> None:
    model = synthetic("next-tiny", SEED)
    found = exported(model, tmp_path / "model.gguf", "qwen35moe")
    assert differing(model, found) == []


def test_a_file_of_a_file(tmp_path: Path) -> None:
    """What was read is written as it was: the second file is the first one."""
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    export_gguf(exported(synthetic("hybrid-tiny", SEED), first), second)
    assert first.read_bytes() == second.read_bytes()


def test_the_same_file_every_time(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("first.gguf", "second.gguf")]
    for path in paths:
        export_gguf(synthetic("next-tiny", SEED), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def changed(name: str, **values: object) -> SyntheticModel:
    model = synthetic(name, SEED, "f32")
    return replace(model, config=replace(model.config, **values))


def test_a_tied_head_and_padded_ids(tmp_path: Path) -> None:
    model = changed("dense-tiny", tied=True, real_ids=500)
    found = exported(model, tmp_path / "model.gguf")
    assert (found.config.tied, found.config.real_ids) == (True, 500)
    assert differing(model, found) == []


@pytest.mark.parametrize("only", ["gdn", "attn"])
def test_layers_of_one_kind(only: str, tmp_path: Path) -> None:
    model = synthetic("hybrid-tiny", SEED, "q4", only)
    found = exported(model, tmp_path / "model.gguf")
    assert differing(model, found) == []
    kinds = [found.config.is_gdn(layer) for layer in range(8)]
    assert kinds == [only == "gdn"] * 8


def test_a_wrong_order_when_written_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted in the writer alone: heads moved the wrong way. Tensors and keys tell."""
    model, path, right = synthetic("hybrid-tiny", SEED), tmp_path / "model.gguf", names.tiled

    def wrong(config: ModelConfig) -> np.ndarray:
        return np.argsort(right(config))

    monkeypatch.setattr(names, "tiled", wrong)
    export_gguf(model, path)
    monkeypatch.setattr(names, "tiled", right)
    found = open_gguf(path)
    moved = ("qkv_proj", "z_proj", "a_proj", "b_proj", "conv", "dt_bias", "out_proj")
    stems = {name.removesuffix(".d").removesuffix(".qs") for name in differing(model, found)}
    layers = (0, 1, 2, 4, 5, 6)
    assert stems == {f"layers.{layer}.{name}" for layer in layers for name in moved}
    first = next(a for a, b in zip(keys(model), keys(found), strict=True) if a != b)
    assert str(first.key) == "t0_l0_qkv"


def test_pairwise_nibbles_when_written_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: codes of neighbours packed into one byte."""
    right = export.q4_blocks

    def pairwise(scales: np.ndarray, nibbles: np.ndarray) -> np.ndarray:
        packed = nibbles.reshape(-1, 16)
        codes = np.concatenate((packed & 15, packed >> 4), axis=1)
        return right(scales, (codes[:, ::2] | codes[:, 1::2] << 4).reshape(nibbles.shape))

    monkeypatch.setattr(export, "q4_blocks", pairwise)
    model = synthetic("dense-tiny", SEED)
    found = differing(model, exported(model, tmp_path / "model.gguf"))
    assert found == [name for name in model.names() if name.endswith(".qs")]


def test_never_over_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("mine")
    with pytest.raises(InputError) as caught:
        export_gguf(synthetic("dense-tiny", SEED), path)
    assert caught.value.exit_status == ExitStatus.USAGE == 2
    assert caught.value.message == f"{path}: exists already"
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_never_over_a_file_that_appears_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, right = tmp_path / "model.gguf", export._add_values

    def quicker(*given: object) -> None:
        path.write_text("theirs")
        right(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(export, "_add_values", quicker)
    with pytest.raises(InputError) as caught:
        export_gguf(synthetic("dense-tiny", SEED), path)
    assert (caught.value.message, caught.value.next_step) == (
        f"{path}: exists already",
        "choose another name",
    )
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_left_of_a_file_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(model: Model, name: str, names: frozenset[str]) -> np.ndarray:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "_blocks", full)
    path = tmp_path / "model.gguf"
    with pytest.raises(InputError) as caught:
        export_gguf(synthetic("dense-tiny", SEED), path)
    assert caught.value.message == f"{path}: cannot write: No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_does_not_take_every_byte(tmp_path: Path) -> None:
    """NumPy's writing ends early without telling why: here at a limit on the size of files."""
    path, limits = tmp_path / "model.gguf", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(InputError) as caught:
            export_gguf(synthetic("dense-tiny", SEED), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    problem = "not every byte was taken; the disk may be full"
    assert caught.value.message == f"{path}: cannot write: {problem}"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write: No such file or directory"):
        export_gguf(synthetic("dense-tiny", SEED), tmp_path / "none" / "model.gguf")


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("moe-tiny", {"norm_topk_prob": False},
         "qwen3moe scales the chosen experts to a sum of 1, moe-tiny does not"),
        ("moe-tiny", {"dense_layers": (1,), "dense_inter": 96},
         "qwen3moe has experts in every layer, moe-tiny dense ones too"),
        ("moe-tiny", {"shared_inter": 96},
         "qwen3moe and moe-tiny differ in whether there is a shared expert"),
        ("next-tiny", {"shared_inter": 0},
         "qwen3next and next-tiny differ in whether there is a shared expert"),
        ("dense-tiny", {"rot": 16}, "qwen3 rotates whole heads, dense-tiny 16 elements"),
    ],
)  # fmt: skip
def test_what_the_format_cannot_hold(
    name: str, values: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        export_gguf(changed(name, **values), tmp_path / "model.gguf")
    assert caught.value.message == f"GGUF: {said}"
    assert list(tmp_path.iterdir()) == []


def test_another_architecture_than_the_models(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        export_gguf(synthetic("dense-tiny", SEED), tmp_path / "model.gguf", "qwen35")
    assert caught.value.message == "GGUF: dense-tiny is no qwen35 model"


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(NotRunError) as caught:
        export_gguf(synthetic("dense-tiny", SEED), tmp_path / "model.gguf")
    assert caught.value.exit_status == ExitStatus.NOT_RUN == 3
    assert caught.value.next_step == "run: pip install 'parity-harness[models]'"
    assert list(tmp_path.iterdir()) == []


def test_what_llama_cpp_needs_is_there(tmp_path: Path) -> None:
    from parity.model.gguf.reading import read_gguf

    for name, wanted in {
        "hybrid-tiny": {"qwen35.rope.dimension_sections": [4, 4, 4, 0]},
        "hybrid-64": {"qwen35.rope.dimension_sections": [2, 1, 1, 0]},
        "next-tiny": {"qwen3next.expert_shared_feed_forward_length": 224},
    }.items():
        path = tmp_path / f"{name}.gguf"
        architecture = export_gguf(synthetic(name, SEED), path)
        values = read_gguf(path).values
        assert values["tokenizer.ggml.model"] == "none"
        assert values[f"{architecture}.vocab_size"] == synthetic(name, SEED).config.vocab
        assert wanted.items() <= values.items()
