"""A Hugging Face folder: round trips, and every way in which its files can be wrong (B31)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.dtypes import same_bits
from parity.errors import InputError
from parity.model.checks import check_shape, wanted_tensors
from parity.model.folder import open_folder
from parity.model.loading import load_tensors
from parity.model.model import synthetic, weight_shapes
from tests.cli_runner import run_cli
from tests.hf_folders import (
    ARCHITECTURES,
    Tensors,
    config_of,
    tensors_of,
    write_folder,
    write_model,
    write_safetensors,
)

SEED = 11
Array = np.ndarray[Any, np.dtype[Any]]
MODEL = synthetic("dense-tiny", SEED, "f32")
DENSE = "Qwen3ForCausalLM"
CONFIG = config_of(MODEL.config, DENSE)
TENSORS = tensors_of(MODEL, DENSE)
K_PROJ = "model.layers.2.self_attn.k_proj.weight"


def upper_half(values: Array) -> Array:
    """bfloat16 of float32 values, cut: what is left widens exactly."""
    return (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16)


def refused(path: Path, **options: str) -> tuple[str, str]:
    """Message and next step, the folder's path taken out."""
    with pytest.raises(InputError) as caught:
        open_folder(path, **options)
    message = caught.value.message.replace(f"{path}/", "").replace(str(path), "FOLDER")
    return message, caught.value.next_step


# --- what is read -----------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [False, True], ids=["single", "fused"])
@pytest.mark.parametrize("preset", ARCHITECTURES)
def test_round_trip_of_a_preset(tmp_path: Path, preset: str, fused: bool) -> None:
    """Every tensor of a preset comes back bit for bit, under its name, in the digest's order."""
    model = synthetic(preset, SEED, "f32")
    read = open_folder(write_model(tmp_path / "m", model, ARCHITECTURES[preset], fused=fused))
    assert list(read.names()) == list(model.names())
    wanted = wanted_tensors(read.config, frozenset(read.names()))
    for name, array in load_tensors(read):
        check_shape(name, array, wanted[name])
        assert same_bits(model.tensor(name), array), name
    assert read.label == "m f32"
    assert read.config.kv == "f32"


def test_red_round_trip_of_a_changed_bit(tmp_path: Path) -> None:
    changed = TENSORS | {K_PROJ: TENSORS[K_PROJ].copy()}
    changed[K_PROJ].view(np.uint32)[5, 7] ^= 1
    read = open_folder(write_folder(tmp_path / "m", CONFIG, changed))
    apart = [name for name in read.names() if not same_bits(MODEL.tensor(name), read.tensor(name))]
    assert apart == ["layers.2.k_proj"]


def test_shards_are_one_model(tmp_path: Path) -> None:
    one = open_folder(write_folder(tmp_path / "one", CONFIG, TENSORS))
    three = open_folder(write_folder(tmp_path / "three", CONFIG, TENSORS, shards=3))
    assert one.config.text() == three.config.text()
    assert (
        one.source.file_bytes
        == three.source.file_bytes
        == sum(array.nbytes for array in TENSORS.values())
    )
    for name in one.names():
        assert same_bits(one.tensor(name), three.tensor(name)), name


def test_float32_is_not_copied(tmp_path: Path) -> None:
    """A view of the file; what an engine wrote into it would not reach the file."""
    folder = write_folder(tmp_path / "m", CONFIG, TENSORS)
    before = (folder / "model.safetensors").read_bytes()
    array = open_folder(folder).tensor("layers.2.k_proj")
    assert not array.flags.owndata
    array[0, 0] += 1
    assert (folder / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("pad", range(4))
def test_data_that_is_not_aligned(tmp_path: Path, pad: int) -> None:
    """A writer need not care where the data begins; engines get aligned arrays all the same."""
    folder = write_folder(tmp_path / "m", CONFIG, TENSORS)
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    table = data[8 : 8 + length] + b" " * pad
    path.write_bytes(len(table).to_bytes(8, "little") + table + data[8 + length :])
    read = open_folder(folder)
    for name in read.names():
        array = read.tensor(name)
        assert array.flags.aligned
        assert same_bits(MODEL.tensor(name), array), name


def test_halves_widen_exactly(tmp_path: Path) -> None:
    """float16 with subnormals, bfloat16, and all three dtypes in one folder."""
    half = np.arange(MODEL.config.hidden, dtype=np.uint16).view(np.float16)
    head = upper_half(TENSORS["lm_head.weight"])
    stored: Tensors = {**TENSORS, "model.norm.weight": half, "lm_head.weight": head}
    read = open_folder(write_folder(tmp_path / "m", CONFIG, stored))
    exact = np.array([float(value) for value in half], np.float32)
    assert same_bits(exact, read.tensor("final_norm"))
    cut = np.ascontiguousarray(TENSORS["lm_head.weight"]).view(np.uint32) & np.uint32(0xFFFF0000)
    assert same_bits(cut.view(np.float32), read.tensor("lm_head"))
    assert read.source.stored == f"{len(TENSORS) - 2} F32, 1 F16, 1 BF16"


def test_offset_is_added_once_in_f32(tmp_path: Path) -> None:
    """bfloat16 offsets of a hybrid: 1 + w is rounded in float32, not in bfloat16; the gated norm
    is stored as it is."""
    model = synthetic("hybrid-tiny", SEED, "f32")
    kind = ARCHITECTURES["hybrid-tiny"]
    tensors = tensors_of(model, kind)
    small = np.full(model.config.hidden, 0x3B01, np.uint16)  # 0.00196838...
    gated = np.full(96, 0x3F81, np.uint16)  # 1.0078125
    tensors["model.layers.0.input_layernorm.weight"] = small
    tensors["model.layers.0.linear_attn.norm.weight"] = gated
    read = open_folder(write_folder(tmp_path / "m", config_of(model.config, kind), tensors))
    offset = (small.astype(np.uint32) << 16).view(np.float32)
    assert same_bits(np.float32(1) + offset, read.tensor("layers.0.attn_norm"))
    assert same_bits(np.full(96, 1.0078125, np.float32), read.tensor("layers.0.gdn_norm"))


# --- the head (B31) ---------------------------------------------------------------------------

HEADLESS = {name: array for name, array in TENSORS.items() if name != "lm_head.weight"}


def test_no_head_though_tied_is_false(tmp_path: Path) -> None:
    for config in (CONFIG, {**CONFIG, "tie_word_embeddings": False}):
        assert refused(write_folder(tmp_path / "m", config, HEADLESS)) == (
            "FOLDER: 'lm_head.weight' is missing",
            "config.json says that the head is not tied",
        )


def test_tied_without_head(tmp_path: Path) -> None:
    config = {**CONFIG, "tie_word_embeddings": True}
    read = open_folder(write_folder(tmp_path / "m", config, HEADLESS))
    assert read.config.tied
    assert "lm_head" not in weight_shapes(read.config)
    assert "lm_head" not in set(read.names())


def test_tied_with_a_head_of_the_same_bytes(tmp_path: Path) -> None:
    config = {**CONFIG, "tie_word_embeddings": True}
    head = {**TENSORS, "lm_head.weight": TENSORS["model.embed_tokens.weight"]}
    assert "lm_head" not in set(open_folder(write_folder(tmp_path / "m", config, head)).names())


def test_tied_with_a_head_of_other_bytes(tmp_path: Path) -> None:
    config = {**CONFIG, "tie_word_embeddings": True}
    assert refused(write_folder(tmp_path / "m", config, TENSORS)) == (
        "FOLDER: 'lm_head.weight' is not 'model.embed_tokens.weight', but config.json ties them",
        "set tie_word_embeddings to what is meant",
    )


# --- names, shapes and dtypes -----------------------------------------------------------------


def without(name: str) -> Tensors:
    return {other: array for other, array in TENSORS.items() if other != name}


FETCH = "fetch the folder again; it may be incomplete"
NAMES: dict[str, tuple[Tensors, str, str]] = {
    "one key projection": (without(K_PROJ), f"FOLDER: {K_PROJ!r} is missing", FETCH),
    "another naming scheme": (
        {name.replace("self_attn", "attention"): array for name, array in TENSORS.items()},
        "FOLDER: 'model.layers.0.self_attn.k_norm.weight' and 23 more are missing",
        FETCH,
    ),
    "an unknown tensor": (
        {**TENSORS, "model.layers.0.self_attn.q_proj.bias": np.zeros(4, np.float32)},
        "FOLDER: 'model.layers.0.self_attn.q_proj.bias' is unknown",
        f"a {DENSE} has no such tensor; left out: nothing",
    ),
    "an empty tensor": (
        {**TENSORS, K_PROJ: np.zeros((64, 0), np.float32)},
        f"FOLDER: {K_PROJ!r} is [64, 0], config.json says [64, 128]",
        "check how the folder was made",
    ),
    "a transposed tensor": (
        {**TENSORS, K_PROJ: np.ascontiguousarray(TENSORS[K_PROJ].T)},
        f"FOLDER: {K_PROJ!r} is [128, 64], config.json says [64, 128]",
        "check how the folder was made",
    ),
    "another dtype": (
        {**TENSORS, K_PROJ: TENSORS[K_PROJ].astype(np.float64)},
        f"FOLDER: {K_PROJ!r} is F64, which is not supported",
        "supported: F32, F16, BF16",
    ),
}


@pytest.mark.parametrize("case", NAMES)
def test_refused_tensors(tmp_path: Path, case: str) -> None:
    tensors, message, next_step = NAMES[case]
    assert refused(write_folder(tmp_path / "m", CONFIG, tensors)) == (message, next_step)


def test_left_out_tensors(tmp_path: Path) -> None:
    """MTP and vision tensors, whatever they are, are not read; others of a hybrid are refused."""
    model = synthetic("hybrid-tiny", SEED, "f32")
    kind = ARCHITECTURES["hybrid-tiny"]
    config, tensors = config_of(model.config, kind), tensors_of(model, kind)
    extra = {"mtp.fc.weight": np.zeros((2, 3), np.float64)}
    extra["model.visual.pos_embed.weight"] = np.zeros(5, np.int8)
    read = open_folder(write_folder(tmp_path / "m", config, {**tensors, **extra}))
    assert list(read.names()) == list(model.names())
    more = {**tensors, **extra, "model.mtp.norm.weight": np.zeros(2, np.float32)}
    assert refused(write_folder(tmp_path / "m", config, more)) == (
        "FOLDER: 'model.mtp.norm.weight' is unknown",
        f"a {kind} has no such tensor; left out: mtp.*, model.visual.*, visual.*",
    )


def test_non_finite_weights_are_refused_at_load(tmp_path: Path) -> None:
    holed = TENSORS[K_PROJ].copy()
    holed[3, 5] = np.inf
    folder = write_folder(tmp_path / "m", CONFIG, {**TENSORS, K_PROJ: holed})
    said = "holds 1 non-finite values, first at element 389"
    for weights, name in (("f32", "layers.2.k_proj"), ("q4", K_PROJ)):
        with pytest.raises(InputError, match=rf"^weight {name} {said}$"):
            list(load_tensors(open_folder(folder, weights)))


# --- container and index ----------------------------------------------------------------------


def changed_index(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


def first(places: dict[str, Any], file: object) -> None:
    places[next(iter(places))] = file


ONE, TWO = (f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
EMBED = "model.embed_tokens.weight"
INDEX = "model.safetensors.index.json"
INDEXES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "a shard that is not there": (
        lambda places: first(places, "other.safetensors"),
        f"{INDEX}: the shard other.safetensors is missing",
    ),
    "a path": (
        lambda places: first(places, "../secret.safetensors"),
        f"{INDEX}: {EMBED!r} lies in '../secret.safetensors', which is no file of the folder",
    ),
    "a number": (
        lambda places: first(places, 3),
        f"{INDEX}: {EMBED!r} lies in 3, which is no file of the folder",
    ),
    "the folder itself": (
        lambda places: first(places, ".."),
        f"{INDEX}: {EMBED!r} lies in '..', which is no file of the folder",
    ),
    "another shard": (lambda places: first(places, TWO), f"{INDEX}: {EMBED!r} is not in {TWO}"),
    "a tensor that is nowhere": (
        lambda places: places.update({"new.weight": ONE}),
        f"{INDEX}: 'new.weight' is not in {ONE}",
    ),
    "a tensor left out": (
        lambda places: places.pop(EMBED),
        f"{INDEX}: {EMBED!r} of {ONE} is not named",
    ),
    "nothing": (lambda places: places.clear(), f"{INDEX}: weight_map names no tensors"),
}


@pytest.mark.parametrize("case", INDEXES)
def test_refused_indexes(tmp_path: Path, case: str) -> None:
    change, message = INDEXES[case]
    folder = write_folder(tmp_path / "m", CONFIG, TENSORS, shards=2)
    changed_index(folder, change)
    assert refused(folder) == (message, FETCH)


def test_one_name_in_two_shards(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", CONFIG, TENSORS, shards=2)
    half = {name: TENSORS[name] for name in list(TENSORS)[1::2]}
    write_safetensors(folder / TWO, {**half, EMBED: TENSORS[EMBED]})
    assert refused(folder) == (f"FOLDER: {EMBED!r} is in {ONE} and in {TWO}", FETCH)


def test_no_weights_or_two_sets_of_them(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", CONFIG, TENSORS, shards=2)
    (folder / "model.safetensors").write_bytes(b"")
    assert refused(folder)[0] == f"FOLDER: both model.safetensors and {INDEX}"
    (folder / "model.safetensors").unlink()
    (folder / INDEX).unlink()
    assert refused(folder)[0] == f"FOLDER: neither model.safetensors nor {INDEX}"


@pytest.mark.parametrize("less", [1, 18, 5000])
def test_a_shard_that_is_cut(tmp_path: Path, less: int) -> None:
    folder = write_folder(tmp_path / "m", CONFIG, TENSORS, shards=2)
    data = (folder / TWO).read_bytes()
    (folder / TWO).write_bytes(data[:-less])
    message, _ = refused(folder)
    assert message == f"{TWO}: the tensors end at byte {len(data)}, the file at {len(data) - less}"


def table_of(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def moved(name: str, by: tuple[int, int]) -> Callable[[dict[str, Any]], None]:
    def change(table: dict[str, Any]) -> None:
        offsets = table[name]["data_offsets"]
        table[name]["data_offsets"] = [offsets[0] + by[0], offsets[1] + by[1]]

    return change


NORM = "model.norm.weight"  # second in the file, 512 bytes
TABLES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "overlap": (moved(NORM, (-4, -4)), rf"'{NORM}' begins .* expected: it overlaps '{EMBED}'$"),
    "gap": (moved(NORM, (4, 4)), rf"'{NORM}' begins .* it leaves a gap after '{EMBED}'$"),
    "range past the file": (moved(NORM, (0, 1 << 62)), rf"'{NORM}' has \d+ bytes, 512 needed"),
    "range that wraps": (
        moved(NORM, ((1 << 64) - 32, (1 << 64) - 32)),
        rf" expected: it leaves a gap after '{EMBED}'$",
    ),
    "negative range": (moved(NORM, (-(1 << 40), 0)), rf"the entry of '{NORM}' lacks a proper"),
    "an empty tensor inside another": (
        lambda table: table.update({"e": {"dtype": "F32", "shape": [0], "data_offsets": [8, 8]}}),
        rf"'e' begins at byte .* it overlaps '{EMBED}'$",
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_refused_ranges(tmp_path: Path, case: str) -> None:
    change, pattern = TABLES[case]
    folder = write_folder(tmp_path / "m", CONFIG, TENSORS)
    path = folder / "model.safetensors"
    table, data = table_of(path)
    change(table)
    text = json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    with pytest.raises(InputError, match=pattern):
        open_folder(folder)


# --- damaged files ----------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["config.json", INDEX, ONE, TWO])
def test_damaged_headers_are_refused_or_harmless(tmp_path: Path, file: str) -> None:
    """A hundred damages each, of one to four bytes: one line or a model that loads, never a
    traceback. More than half are refused, so they do damage."""
    folder = write_folder(tmp_path / "m", CONFIG, TENSORS, shards=2)
    path = folder / file
    whole = path.read_bytes()
    length = 8 + int.from_bytes(whole[:8], "little") if file in (ONE, TWO) else len(whole)
    rng = np.random.default_rng(len(file))
    said: list[str] = []
    for _ in range(100):
        data = bytearray(whole)
        for at in rng.integers(0, length, rng.integers(1, 5)):
            data[at] = rng.choice(np.frombuffer(b'0123456789"{}[],:-e \\\x00\xff', np.uint8))
        path.write_bytes(data)
        try:
            read = open_folder(folder)
            for name in ("embed", "layers.0.attn_norm", "inv_freq"):
                read.tensor(name)
        except InputError as error:
            said.append(error.message)
    assert len(said) > 50
    assert all(text and "\n" not in text for text in said)


@pytest.mark.parametrize("case", ["cut", "missing"])
def test_the_command_line_says_it_in_two_lines(tmp_path: Path, case: str) -> None:
    """Status 2, what and where, what to do next; no traceback and nothing on stdout."""
    tensors = dict(TENSORS)
    if case == "missing":
        del tensors[K_PROJ]
    folder = write_folder(tmp_path / "m", CONFIG, tensors)
    path = folder / "model.safetensors"
    size = path.stat().st_size
    said = f"{folder}: {K_PROJ!r} is missing\n  next: {FETCH}"
    if case == "cut":
        path.write_bytes(path.read_bytes()[:-1])
        said = f"{path}: the tensors end at byte {size}, the file at {size - 1}"
        said += "\n  next: write the file again; it may be cut or damaged"
    result = run_cli("diff", "--dut", "cpu", "--model", str(folder))
    assert (result.status, result.stdout, result.stderr) == (2, "", f"parity: {said}\n")
