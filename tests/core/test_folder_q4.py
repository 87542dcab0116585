"""A folder quantised at load: the arithmetic of contract 1.0, and the entries kept on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from parity.builds.cache import cache_root
from parity.dtypes import same_bits
from parity.errors import InputError
from parity.model.folder import open_folder
from parity.model.folder.quantise import quantised
from parity.model.loading import load_tensors
from parity.model.model import synthetic
from tests.hf_folders import ARCHITECTURES, config_of, tensors_of, write_folder, write_model

Array = np.ndarray[Any, np.dtype[Any]]
F = np.float32


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("PARITY_CACHE", str(folder))
    return folder / "q4"


def by_gguf(x: Array) -> tuple[Array, Array]:
    """d uint16 and qs of the gguf package."""
    blocks = quants.quantize(x, GGMLQuantizationType.Q4_0).reshape(*x.shape[:-1], -1, 18)
    d = np.ascontiguousarray(blocks[..., :2]).view(np.uint16)[..., 0]
    return d, np.ascontiguousarray(blocks[..., 2:]).reshape(*x.shape[:-1], -1)


def by_hand(block: list[float]) -> tuple[int, bytes]:
    """One block, scalar by scalar in float32, as contract 1.0 has it."""
    mx = F(0)
    for value in map(F, block):
        if abs(value) > abs(mx):
            mx = value
    d = mx / F(-8)
    inverse = F(1) / d if d != 0 else F(0)
    codes = [min(15, int(F(F(value) * inverse) + F(8.5))) for value in block]
    bits = int(np.array(d, np.float16).view(np.uint16))
    return bits, bytes(codes[e] | codes[e + 16] << 4 for e in range(16))


# --- the arithmetic ---------------------------------------------------------------------------


def test_random_rows_as_the_gguf_package_has_them() -> None:
    x = np.random.default_rng(3).standard_normal((7, 5, 96)).astype(F)
    d, qs = quantised(x)
    assert (d.shape, qs.shape) == ((7, 5, 3), (7, 5, 48))
    assert same_bits(by_gguf(x)[0], d)
    assert same_bits(by_gguf(x)[1], qs)


def test_ties_signs_and_zeros() -> None:
    """The first of two largest gives the sign of the scale; halves round up; a block of zeros."""
    rows = np.zeros((5, 32), F)
    rows[0, [3, 7]] = 2, -2  # the first counts: d = -0.25
    rows[1, [3, 7]] = -2, 2  # d = 0.25
    rows[2] = np.arange(32, dtype=F) - 16  # every code, halves of a step
    rows[3, :] = 1  # all the largest
    d, qs = quantised(rows)
    assert d.view(np.float16)[:, 0].tolist() == [-0.25, 0.25, 2.0, -0.125, 0.0]
    assert [qs[r].tobytes() for r in range(5)] == [by_hand(row)[1] for row in rows.tolist()]
    assert qs[0, 3] == 0x80  # 2 / -0.25 + 8.5 cut: 0
    assert qs[0, 7] == 0x8F  # -2 / -0.25 + 8.5 cut is 16: the most is 15
    assert qs[4].tobytes() == b"\x88" * 16
    assert same_bits(by_gguf(rows)[0], d)
    assert same_bits(by_gguf(rows)[1], qs)


def near_halves(seed: int, blocks: int) -> Array:
    """Values a rounding away from where the code changes."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((blocks, 32)).astype(F)
    x[:, 0] = 8 * np.abs(x[:, 0]) + 8
    d = x[:, :1] / F(-8)
    edge = (rng.integers(-7, 7, (blocks, 31)) + F(0.5)).astype(F) * d
    x[:, 1:] = np.nextafter(edge, rng.choice([-100, 100], edge.shape).astype(F))
    return x


def fused(x: Array) -> Array:
    """Codes of rows of one block where x*id + 8.5 is rounded once, as a fused multiply-add does."""
    d = (x[:, :1] / F(-8)).astype(np.float64)
    inverse = (F(1) / d.astype(F)).astype(np.float64)
    return np.minimum((x.astype(np.float64) * inverse + 8.5).astype(F).astype(np.uint8), 15)


def test_two_roundings_and_not_one() -> None:
    """Contract 1.0 rounds x*id, then the sum. These values tell that from a fused operation."""
    x = near_halves(5, 400)
    d, qs = quantised(x)
    assert same_bits(by_gguf(x)[0], d)
    assert same_bits(by_gguf(x)[1], qs)
    for row, bits, code in zip(x.tolist(), d[:, 0].tolist(), qs, strict=True):
        assert by_hand(row) == (bits, code.tobytes())
    codes = np.concatenate([qs & 15, qs >> 4], axis=1)
    assert (codes != fused(x)).sum() > 100


def test_scales_at_the_ends_of_the_range() -> None:
    """A subnormal scale whose inverse is past float32 counts as 0, without a warning; one past f16
    is infinite, and refused when it is loaded."""
    tiny, huge = np.zeros((1, 32), F), np.zeros((1, 32), F)
    tiny[0, 1] = 1e-44
    huge[0, 1] = 8 * 65_520
    assert quantised(tiny)[0].tolist() == [[0x8000]]
    assert quantised(tiny)[1].tobytes() == b"\x88" * 16
    assert quantised(huge)[0].tolist() == [[0xFC00]]


WRONG = {
    "neighbouring elements share a byte": lambda codes: codes[:, ::2] | codes[:, 1::2] << 4,
    "high nibble first": lambda codes: codes[:, :16] << 4 | codes[:, 16:],
    "two's complement": lambda codes: (codes[:, :16] ^ 8) | (codes[:, 16:] ^ 8) << 4,
}


@pytest.mark.parametrize("how", WRONG)
def test_red_another_layout_of_the_nibbles(how: str) -> None:
    """Each is another matrix in the package's eyes."""
    x = np.random.default_rng(3).standard_normal((6, 32)).astype(F)
    right = quantised(x)[1]
    codes = np.concatenate([right & 15, right >> 4], axis=1)
    assert same_bits(codes[:, :16] | codes[:, 16:] << 4, by_gguf(x)[1])
    assert not same_bits(WRONG[how](codes), by_gguf(x)[1])


# --- a folder ---------------------------------------------------------------------------------

KINDS = ["dense-tiny", "moe-tiny", "next-tiny"]


@pytest.mark.parametrize("fused", [False, True], ids=["single", "fused"])
@pytest.mark.parametrize("preset", KINDS)
def test_which_tensors_are_quantised(tmp_path: Path, preset: str, fused: bool) -> None:
    """Matrices are Q4_0, embedding and head too; router, norms, a and b and the rest stay f32."""
    model = synthetic(preset, 5, "f32")
    like = synthetic(preset, 5, "q4")
    folder = write_model(tmp_path / "m", model, ARCHITECTURES[preset], fused=fused)
    read = open_folder(folder, "q4")
    assert list(read.names()) == list(like.names())
    for name, array in load_tensors(read):
        stem, _, part = name.rpartition(".")
        if part in ("d", "qs"):
            assert same_bits(by_gguf(model.tensor(stem))[part == "qs"], array), name
        else:
            assert same_bits(model.tensor(name), array), name
    assert read.config.kv == like.config.kv
    assert read.label == "m q4"


def dense(tmp_path: Path, **changed: Array) -> Path:
    model = synthetic("dense-tiny", 5, "f32")
    tensors = tensors_of(model, "Qwen3ForCausalLM")
    return write_folder(tmp_path / "m", config_of(model.config, "Qwen3ForCausalLM"), tensors)


def loaded(folder: Path) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in load_tensors(open_folder(folder, "q4"))}


def test_row_length_that_no_block_fits(tmp_path: Path) -> None:
    model = synthetic("dense-tiny", 5, "f32")
    config = config_of(model.config, "Qwen3ForCausalLM") | {"intermediate_size": 48}
    tensors = tensors_of(model, "Qwen3ForCausalLM")
    for name in tensors:
        if name.endswith(("gate_proj.weight", "up_proj.weight")):
            tensors[name] = tensors[name][:48]
        elif name.endswith("down_proj.weight"):
            tensors[name] = np.ascontiguousarray(tensors[name][:, :48])
    folder = write_folder(tmp_path / "m", config, tensors)
    open_folder(folder, "f32")
    with pytest.raises(InputError) as caught:
        open_folder(folder, "q4")
    assert caught.value.message == (
        f"{folder}: model.layers.0.mlp.down_proj.weight has rows of 48, no multiple of 32: "
        "it cannot be Q4_0"
    )
    assert caught.value.next_step == "use --weights f32"


def test_other_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^--weights q8: a folder's matrices are held as q4 or f32$"
    ):
        open_folder(dense(tmp_path), "q8")


# --- what is kept -----------------------------------------------------------------------------


def quantisations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry a call of the quantiser from now on."""
    calls: list[int] = []

    def counted(x: Array) -> tuple[Array, Array]:
        calls.append(x.size)
        return quantised(x)

    monkeypatch.setattr("parity.model.folder.kept.quantised", counted)
    return calls


def test_a_second_load_reads_what_was_kept(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, calls = dense(tmp_path), quantisations(monkeypatch)
    assert cache_root() == own_cache.parent
    made = loaded(folder)
    assert len(calls) == len(list(own_cache.iterdir())) == 4 * 7 + 2  # one a matrix
    calls.clear()
    assert loaded(folder) == made
    assert calls == []


@pytest.mark.parametrize("how", ["altered", "cut", "swapped"])
def test_red_an_entry_that_is_not_what_was_kept(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It is made again, never believed."""
    folder, calls = dense(tmp_path), quantisations(monkeypatch)
    made = loaded(folder)
    one, other = sorted(own_cache.iterdir())[:2]
    data = bytearray(one.read_bytes())
    data[100] ^= 1
    changed = {"altered": bytes(data), "cut": bytes(data[:-18]), "swapped": other.read_bytes()}
    one.write_bytes(changed[how])
    calls.clear()
    assert loaded(folder) == made
    assert len(calls) == 1
    assert loaded(folder) == made


def test_red_changed_weights_are_other_entries(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte of one tensor: only that matrix is made again, and it differs."""
    folder, calls = dense(tmp_path), quantisations(monkeypatch)
    made = loaded(folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-2] ^= 0x40  # in the last tensor, a matrix
    path.write_bytes(data)
    calls.clear()
    again = loaded(folder)
    apart = {name.rpartition(".")[0] for name in made if made[name] != again[name]}
    assert apart == {"layers.3.mlp.down"}
    assert len(calls) == 1


def test_bfloat16_and_its_float32_do_not_share_an_entry_but_their_bits(
    tmp_path: Path, own_cache: Path
) -> None:
    model = synthetic("dense-tiny", 5, "f32")
    config = config_of(model.config, "Qwen3ForCausalLM")
    half = {
        name: (array.view(np.uint32) >> 16).astype(np.uint16)
        for name, array in tensors_of(model, "Qwen3ForCausalLM").items()
    }
    wide = {name: (a.astype(np.uint32) << 16).view(F) for name, a in half.items()}
    first = loaded(write_folder(tmp_path / "half", config, half))
    assert loaded(write_folder(tmp_path / "wide", config, wide)) == first
    assert len(list(own_cache.iterdir())) == 2 * (4 * 7 + 2)


def test_without_a_folder_to_keep_them_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = dense(tmp_path)
    made = loaded(folder)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path / "file"))
    assert loaded(folder) == made


def test_either_part_first_and_twice(tmp_path: Path) -> None:
    """Engines load d, then qs; whoever asks otherwise gets the same."""
    read, name = open_folder(dense(tmp_path), "q4"), "layers.1.o_proj"
    qs, d = read.tensor(f"{name}.qs"), read.tensor(f"{name}.d")
    assert same_bits(d, read.tensor(f"{name}.d"))
    assert same_bits(d, read.tensor(f"{name}.d"))
    assert same_bits(qs, read.tensor(f"{name}.qs"))
