"""FNV-1a-64, scalar and over arrays."""

from __future__ import annotations

import random
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.fnv import _BLOCK, BASES, fnv1a64, fnv1a64_array, fnv1a64_prefixes, hex16

COUNT = np.arange(16, dtype=np.float32)
# Test vectors: bytes (f32 little-endian where numeric) and their digest.
VECTORS = {
    "empty": (np.empty(0, np.uint8), "cbf29ce484222325"),
    "a": (np.frombuffer(b"a", np.uint8), "af63dc4c8601ec8c"),
    "foobar": (np.frombuffer(b"foobar", np.uint8), "85944171f73967e8"),
    "16 x ff": (np.full(16, 255, np.uint8), "d6607508f5a1e855"),
    "+0": (np.float32([0.0]), "4d25767f9dce13f5"),
    "-0": (np.float32([-0.0]), "4d24f67f9dcd3a75"),
    "1": (np.float32([1.0]), "4b72477f9c5c2f98"),
    "0..15": (COUNT, "13fdf84d829c1708"),
    "every second": (COUNT[::2], "675d16518c470145"),
    "reversed": (COUNT[::-1], "e6317ba1d5d1aeb8"),
    "4x4 transposed": (COUNT.reshape(4, 4).T, "715d61abb02be318"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name: str) -> None:
    array, digest = VECTORS[name]
    assert hex16(fnv1a64(array.tobytes())) == digest
    assert hex16(fnv1a64_array(array)) == digest


def test_the_bytes_of_a_view_are_its_own_and_not_its_neighbours() -> None:
    assert hex16(fnv1a64_array(COUNT[:8])) == "25803f1d38a3dc08"
    assert fnv1a64_array(COUNT[::2]) != fnv1a64_array(COUNT[:8])


def test_big_endian_arrays_hash_as_little_endian() -> None:
    assert fnv1a64_array(COUNT.astype(">f4")) == fnv1a64_array(COUNT)


def test_shape_does_not_enter_the_hash_and_a_scalar_has_one() -> None:
    assert fnv1a64_array(COUNT.reshape(2, 2, 4)) == fnv1a64_array(COUNT)
    assert fnv1a64_array(np.float32(1.0).reshape(())) == int("4b72477f9c5c2f98", 16)


def test_the_basis_of_the_kestrel_articles_is_another() -> None:
    assert BASES["kestrel-fnv"] == 1469598103934665603
    assert BASES["kestrel-fnv"] == int(str(BASES["fnv1a64"])[:-1])
    assert fnv1a64(b"", BASES["kestrel-fnv"]) == BASES["kestrel-fnv"]
    assert fnv1a64_array(COUNT, BASES["kestrel-fnv"]) == fnv1a64(
        COUNT.tobytes(), BASES["kestrel-fnv"]
    )


@given(st.binary(max_size=300), st.integers(0, 2**64 - 1))
@settings(derandomize=True, max_examples=200)
def test_the_array_path_equals_the_scalar_path(data: bytes, basis: int) -> None:
    assert fnv1a64_array(np.frombuffer(data, np.uint8), basis) == fnv1a64(data, basis)


@pytest.mark.parametrize("size", [16383, 16384, 16385, 40_000])
def test_block_borders(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    assert fnv1a64_array(data) == fnv1a64(data.tobytes())


def test_leading_zeros_are_written() -> None:
    assert hex16(0x1A) == "000000000000001a"


@pytest.mark.parametrize("at", [0, 17_000, 39_999])
@pytest.mark.parametrize("bit", range(8))
def test_every_bit_of_a_long_buffer_counts(at: int, bit: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, 40_000, np.uint8)
    before = fnv1a64_array(data)
    data[at] ^= 1 << bit
    assert fnv1a64_array(data) != before


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=30), st.integers(0, 2**64 - 1))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_prefix_hashes_are_those_of_the_scalar_hash(parts: list[bytes], basis: int) -> None:
    data, ends = b"".join(parts), [*accumulate(map(len, parts))]
    assert fnv1a64_prefixes(data, ends, basis) == [fnv1a64(data[:end], basis) for end in ends]


def test_prefix_hashes_go_on_from_block_to_block() -> None:
    data = random.Random(5).randbytes(3 * _BLOCK + 7)
    ends = [1, _BLOCK - 1, _BLOCK, _BLOCK + 1, 2 * _BLOCK, 3 * _BLOCK + 7]
    assert fnv1a64_prefixes(data, ends) == [fnv1a64(data[:end]) for end in ends]
    assert fnv1a64_prefixes(b"", []) == []
