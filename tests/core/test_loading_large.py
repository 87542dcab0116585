"""Loading a model: what is told meanwhile, how far it runs ahead, and what it refuses."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parity.errors import InputError, ParityBug
from parity.model import loading, watching
from parity.model.checks import check_finite
from parity.model.config import ModelConfig, preset
from parity.model.gguf import export_gguf, open_gguf
from parity.model.loading import Ahead, load_tensors
from parity.model.mapping import map_file
from parity.model.memory import state_bytes, weight_bytes
from parity.model.model import Model, synthetic
from parity.model.watching import Watched
from parity.progress import Progress
from parity_cpu.state import State
from tests.cli_runner import run_cli


class Terminal(io.StringIO):
    """What was drawn."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Half a second later at every look."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def watched(model: Model, terminal: io.StringIO) -> Watched:
    clock = Clock()
    return Watched(model, "dut emu", Progress(terminal, clock=clock), clock)


# --- progress -------------------------------------------------------------------------------------


def test_tensors_bytes_and_rate_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "SHOWN", 10**6)
    terminal, model = Terminal(), synthetic("moe-tiny", 7)
    seen = watched(model, terminal)
    loaded = dict(load_tensors(seen))
    drawn = [line.strip() for line in terminal.getvalue().split("\r") if line.strip()]
    assert len(loaded) == len(list(model.names()))
    assert drawn[0].startswith("dut emu  tensor 1 of ")
    assert f"tensor {len(loaded)} of {len(loaded)}, " in drawn[-1]
    assert " GB/s  1 of 1 MB" in drawn[-1]
    assert (seen.label, seen.config, seen.seed) == (model.label, model.config, 7)


def test_a_large_model_leaves_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, model = io.StringIO(), synthetic("moe-tiny", 7)
    monkeypatch.setattr(watching, "TOLD", 10**6)
    seen = watched(model, pipe)
    dict(load_tensors(seen))
    seen.finish()
    assert pipe.getvalue().startswith("dut emu: moe-tiny seed 7 loaded, 1.4 MB in ")
    assert pipe.getvalue().endswith(" GB/s\n")


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_small_model_shows_and_leaves_none(kind: type[io.StringIO]) -> None:
    stream = kind()
    seen = watched(synthetic("moe-tiny", 7), stream)
    dict(load_tensors(seen))
    seen.finish()
    assert stream.getvalue() == ""


def test_a_command_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "TOLD", 10**6)
    result = run_cli("diff", "--dut", "cpu", "--n", "1")
    assert result.status == 0
    told = [line.partition(" in ")[0] for line in result.stderr.splitlines()]
    assert told == [f"{side} cpu: moe-tiny seed 7 loaded, 1.4 MB" for side in ("ref", "dut")]


# --- how far ahead --------------------------------------------------------------------------------


class Counted:
    """A model that counts the bytes which were made and not yet taken."""

    def __init__(self, model: Model) -> None:
        self.model, self.config, self.label = model, model.config, model.label
        self.held = self.most = 0
        self.lock = threading.Lock()

    def names(self) -> Iterator[str]:
        return self.model.names()

    def tensor(self, name: str) -> np.ndarray:
        array = self.model.tensor(name)
        with self.lock:
            self.held += array.nbytes
            self.most = max(self.most, self.held)
        return array

    def taken(self, array: np.ndarray) -> None:
        with self.lock:
            self.held -= array.nbytes


@pytest.mark.parametrize("budget", [1, 60_000, 1 << 30])
def test_tensors_are_made_a_few_bytes_ahead(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    monkeypatch.setattr(loading, "AHEAD", budget)
    model = Counted(synthetic("moe-tiny", 7))
    names = []
    largest = 0
    for name, array in load_tensors(model):
        names.append(name)
        largest = max(largest, array.nbytes)
        model.taken(array)
    assert names == list(model.names())
    assert 0 < model.most <= budget + 2 * largest


def test_tensors_made_ahead_for_one_who_asks() -> None:
    model = synthetic("moe-tiny", 7)
    ahead = Ahead(model)
    names = list(ahead.names())
    for name in [names[1], names[0], *names[2:]]:
        assert ahead.tensor(name).tobytes() == model.tensor(name).tobytes()
    with pytest.raises(ParityBug, match=r"tensor embed\.d was asked for twice"):
        ahead.tensor("embed.d")


# --- not finite -----------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 65_535, 65_536, 199_999])
@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_red_one_value_that_is_not_finite(at: int, dtype: type) -> None:
    values = np.zeros((2, 100_000), dtype)
    check_finite("w", values)
    values.reshape(-1)[at] = np.nan if dtype is np.float32 else 0x7C00
    with pytest.raises(InputError) as raised:
        check_finite("w", values)
    said = f"weight w holds 1 non-finite values, first at element {at}"
    assert raised.value.message == said


def test_red_values_in_several_pieces() -> None:
    values = np.zeros(300_000, np.float32)
    values[[70_000, 70_001, 250_000]] = np.inf, -np.inf, np.nan
    with pytest.raises(InputError, match="holds 3 non-finite values, first at element 70000"):
        check_finite("w", values)


# --- files ----------------------------------------------------------------------------------------


def test_a_mapped_file_is_not_read_only_and_never_written(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"abcd")
    mapped = map_file(path)
    assert mapped.flags.writeable
    mapped[0] = 0
    assert path.read_bytes() == b"abcd"
    with pytest.raises(ValueError, match="empty"):
        map_file(_empty(tmp_path))


def test_a_file_larger_than_memory_is_mapped_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"abcd")
    whole = np.memmap

    def mapped(name: Path, dtype: type, mode: str) -> np.ndarray:
        if mode == "c":
            raise OSError(12, "Cannot allocate memory")
        return whole(name, dtype, mode)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(np, "memmap", mapped)
    assert bytes(map_file(path)) == b"abcd"
    assert not map_file(path).flags.writeable


def _empty(folder: Path) -> Path:
    path = folder / "empty"
    path.write_bytes(b"")
    return path


def test_f32_tensors_of_a_file_are_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    export_gguf(synthetic("dense-tiny", 7, "f32"), path)
    loaded = dict(load_tensors(open_gguf(path)))
    copied = [name for name, array in loaded.items() if array.flags.owndata]
    assert copied == ["inv_freq"]


# --- what is needed -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["moe-tiny", "dense-tiny", "hybrid-tiny", "next-tiny"])
@pytest.mark.parametrize("weights", ["q4", "f32"])
def test_bytes_that_a_side_needs(name: str, weights: str) -> None:
    model = synthetic(name, 7, weights)
    held = sum(array.nbytes for _, array in load_tensors(model))
    assert weight_bytes(model) == held
    config: ModelConfig = model.config
    state = State(config, 37)
    parts = sum(part.nbytes for layer in state.layers for part in layer.values())
    assert state_bytes(config, 37) == parts


def test_bytes_of_the_published_hybrid() -> None:
    config = replace(preset("qwen3.5-27b"))
    assert state_bytes(config, 0) == 156_893_184
