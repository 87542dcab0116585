"""B10, the hash itself is wrong: one table of digests through every path that makes them.

In compiled Python an unsigned value and a signed literal can meet in double precision; taking the
bytes of a strided view can give the memory beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.dumps.tensor_files import read_tensors
from parity.errors import NotRunError
from parity.fnv import BASES, fnv1a64, fnv1a64_array, hex16
from parity.protocol import EngineSettings
from parity_cpu.tap import digest_of
from parity_cuda.backend import Backend
from parity_cuda.emu.compiler import find_compiler
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.weights import weight_digests
from tests.cli_runner import run_cli

COUNT = np.arange(16, dtype=np.float32)
TABLE = {
    "empty": (np.empty(0, np.uint8), "cbf29ce484222325"),
    "a": (np.frombuffer(b"a", np.uint8), "af63dc4c8601ec8c"),
    "foobar": (np.frombuffer(b"foobar", np.uint8), "85944171f73967e8"),
    "16 x ff": (np.full(16, 255, np.uint8), "d6607508f5a1e855"),
    "0.0": (np.zeros(1, np.float32), "4d25767f9dce13f5"),
    "-0.0": (-np.zeros(1, np.float32), "4d24f67f9dcd3a75"),
    "1.0": (np.ones(1, np.float32), "4b72477f9c5c2f98"),
    "0 to 15": (COUNT, "13fdf84d829c1708"),
    "every second": (COUNT[::2], "675d16518c470145"),
    "reversed": (COUNT[::-1], "e6317ba1d5d1aeb8"),
    "transposed": (COUNT.reshape(4, 4).T, "715d61abb02be318"),
}
Hash = Callable[[np.ndarray, int], int]


def in_words(array: np.ndarray, basis: int) -> int:
    """Byte by byte with Python's own integers."""
    return fnv1a64(array.tobytes(), basis)


def in_numba(array: np.ndarray, basis: int) -> int:
    """The reference engine's loop, which takes contiguous memory alone."""
    return digest_of(np.ascontiguousarray(array), basis)


@pytest.fixture(scope="module")
def emulated() -> Backend:
    """The kernels compiled for the CPU."""
    try:
        find_compiler()
    except NotRunError as error:
        pytest.skip(f"emu: {error.message}")
    return EmuBackend(EngineSettings())


@pytest.fixture(scope="module")
def device() -> Backend:
    """A real device."""
    from parity_cuda.cupy_backend import CupyBackend

    return CupyBackend(EngineSettings())


def on(backend: Backend, array: np.ndarray, basis: int) -> int:
    """The digest that the kernel makes where the array lies."""
    return weight_digests(backend, {"x": backend.upload(array)}, basis)["x"][1]


@pytest.mark.parametrize("path", [in_words, fnv1a64_array, in_numba])
@pytest.mark.parametrize("name", TABLE)
def test_b10_python_numpy_and_numba_agree_with_the_table(path: Hash, name: str) -> None:
    array, digest = TABLE[name]
    assert hex16(path(array, BASES["fnv1a64"])) == digest


@pytest.mark.parametrize("name", ["every second", "reversed"])
def test_b10_the_reference_engine_refuses_a_view_of_other_memory(name: str) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        digest_of(TABLE[name][0], BASES["fnv1a64"])


@pytest.mark.parametrize("name", TABLE)
def test_b10_the_kernel_agrees_with_the_table(emulated: Backend, name: str) -> None:
    array, digest = TABLE[name]
    assert hex16(on(emulated, array, BASES["fnv1a64"])) == digest


@pytest.mark.gpu
@pytest.mark.parametrize("name", TABLE)
def test_b10_the_device_agrees_with_the_table(device: Backend, name: str) -> None:
    array, digest = TABLE[name]
    assert hex16(on(device, array, BASES["fnv1a64"])) == digest


def test_b10_every_path_agrees_on_long_buffers_with_any_basis(emulated: Backend) -> None:
    """Sums that overflow many times: an intermediate in double precision loses low digits."""
    chance = np.random.default_rng(10)
    for size in (1, 2, 255, 4096, 70_001):
        data = chance.integers(0, 256, size, np.uint8)
        for basis in (0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, *BASES.values()):
            expected = in_words(data, basis)
            assert fnv1a64_array(data, basis) == expected
            assert digest_of(data, basis) == expected
            assert on(emulated, data, basis) == expected


def test_b10_leading_zeros_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "zero.dump"
    path.write_text("t0_x 0000000000000000\nt0_y 000000000000000a\n")
    assert run_cli("compare", str(path), str(path)).status == 0
    path.write_text("t0_x 0\n")
    assert run_cli("compare", str(path), str(path)).status == 2


def test_b10_tensor_files_are_hashed_by_value_not_as_they_lie(tmp_path: Path) -> None:
    """Big-endian, Fortran order and views give the digest of the same elements."""
    square = COUNT.reshape(4, 4)
    arrays = {
        "big-endian": square.astype(">f4"),
        "Fortran order": np.asfortranarray(square),
        "view": np.repeat(square, 2, 1)[:, ::2],
    }
    for name, array in arrays.items():
        np.savez(tmp_path / "x.npz", x=array)
        (entry,) = read_tensors(tmp_path / "x.npz")[0].entries
        assert hex16(entry.digest) == TABLE["0 to 15"][1], name
        assert str(entry.type) == "f32[4,4]"
    np.savez(tmp_path / "x.npz", x=square.T)
    (entry,) = read_tensors(tmp_path / "x.npz")[0].entries
    assert hex16(entry.digest) == TABLE["transposed"][1]
    np.savez(tmp_path / "other.npz", x=square.T.astype(np.complex64))
    result = run_cli("compare", str(tmp_path / "x.npz"), str(tmp_path / "other.npz"))
    assert (result.status, result.stdout) == (2, "")
