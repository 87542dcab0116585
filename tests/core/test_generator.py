"""The synthetic weights' generator against an independent pure-Python writing of contract 8."""

from __future__ import annotations

import random
import struct
from fractions import Fraction

import numpy as np
import pytest

from parity.fnv import fnv1a64
from parity.model import generator

SEED = 20_261_130
WORD = 1 << 64

# Outputs 0, 1, 2 of the published splitmix64 started at 0.
PUBLISHED = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)
GAMMA = 0x9E3779B97F4A7C15


def splitmix64(x: int) -> int:
    """One step from state x: add, then mix."""
    z = (x + GAMMA) % WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def word(seed: int, name: str, k: int) -> int:
    """u(name, k) of contract 8."""
    return splitmix64(((seed ^ fnv1a64(name.encode())) + k) % WORD)


def cases() -> list[tuple[int, str, int]]:
    """Seed, name and first index: chosen ones, then random ones."""
    rng = random.Random(SEED)
    wrap = fnv1a64(b"wrap") ^ (WORD - 3)  # the counter passes 2^64 after three words
    chosen = [(0, "", 0), (7, "embed.qs", 0), (WORD - 1, "x", 1 << 63), (wrap, "wrap", 0)]
    return [*chosen, *((rng.getrandbits(64), f"n{i}", rng.getrandbits(40)) for i in range(20))]


def test_published_splitmix64() -> None:
    assert tuple(splitmix64(n * GAMMA % WORD) for n in range(3)) == PUBLISHED
    name = "any"
    for n, wanted in enumerate(PUBLISHED):
        seed = fnv1a64(name.encode()) ^ (n * GAMMA % WORD)
        assert int(generator.words(seed, name, 0, 1)[0]) == wanted


@pytest.mark.parametrize(("seed", "name", "start"), cases())
def test_words(seed: int, name: str, start: int) -> None:
    made = generator.words(seed, name, start, 9)
    assert made.dtype == np.uint64
    assert made.tolist() == [word(seed, name, start + k) for k in range(9)]


def test_red_another_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "_MIX2", generator._MIX1)
    assert int(generator.words(0, "x", 0, 1)[0]) != word(0, "x", 0)


@pytest.mark.parametrize(("start", "count"), [(0, 1), (1, 17), (500, 500), (999, 1), (37, 0)])
def test_a_slice_equals_the_whole(start: int, count: int) -> None:
    whole = generator.words(7, "layers.3.q_proj.d", 0, 1000)
    part = generator.words(7, "layers.3.q_proj.d", start, count)
    assert part.tobytes() == whole[start : start + count].tobytes()


def test_a_longer_tensor_begins_with_the_shorter() -> None:
    made = (
        lambda n: generator.nibble_bytes(7, "w", n),
        lambda n: generator.scale_bits(7, "w", n, -7),
        lambda n: generator.signed_f32(7, "w", n, 0),
        lambda n: generator.norm_weights(7, "w", n),
    )
    for make in made:
        short, long = make(5), make(50)
        assert long.tobytes().startswith(short.tobytes())
        assert long.nbytes == 10 * short.nbytes


def test_nibble_bytes() -> None:
    words = [word(7, "w.qs", k) for k in range(6)]
    wanted = b"".join(value.to_bytes(8, "little") for value in words)
    made = generator.nibble_bytes(7, "w", 3)
    assert (made.dtype, made.tobytes()) == (np.uint8, wanted)


@pytest.mark.parametrize("exponent", [-14, -9, 0])
def test_scale_bits(exponent: int) -> None:
    """Sign, then 10 bits of mantissa, from the top of the word; a normal f16 of size 2^e."""
    made = generator.scale_bits(7, "w", 300, exponent)
    assert made.dtype == np.uint16
    for k, bits in enumerate(made.tolist()):
        value = word(7, "w.d", k)
        (half,) = struct.unpack("<e", bits.to_bytes(2, "little"))
        size = Fraction(1024 + (value >> 53) % 1024, 1024) * Fraction(2) ** exponent
        assert Fraction(half) == (-size if value >> 63 else size)


@pytest.mark.parametrize("exponent", [-6, 0, 3])
def test_signed_f32(exponent: int) -> None:
    made = generator.signed_f32(7, "router", 300, exponent)
    assert made.dtype == np.float32
    unit = Fraction(2) ** (exponent - 23)
    wanted = [((word(7, "router", k) >> 40) - (1 << 23)) * unit for k in range(300)]
    assert [Fraction(float(value)) for value in made] == wanted


def test_norm_weights() -> None:
    made = generator.norm_weights(7, "norm", 300)
    assert made.dtype == np.float32
    wanted = [Fraction((3 << 21) + (word(7, "norm", k) >> 42), 1 << 23) for k in range(300)]
    assert [Fraction(float(value)) for value in made] == wanted
    assert all(Fraction(3, 4) <= value < Fraction(5, 4) for value in wanted)


def test_prompt_tokens() -> None:
    assert generator.prompt_tokens(7, 9, 1003) == [word(7, "prompt", k) % 1003 for k in range(9)]
    assert generator.prompt_tokens(7, 40, 3)[:9] == [word(7, "prompt", k) % 3 for k in range(9)]


WIDTHS = [32, 64, 96, 128, 160, 256, 512, 768, 2048, 5120, 8192]


@pytest.mark.parametrize("columns", WIDTHS)
def test_exponents_give_the_gain_they_promise(columns: int) -> None:
    """Squared, in exact numbers: a Q4_0 weight has variance 50.2 * 4^e, a uniform one 4^e / 3."""
    q4 = Fraction(43, 2) * Fraction(7, 3) * columns * Fraction(4) ** generator.q4_exponent(columns)
    f32 = Fraction(columns, 3) * Fraction(4) ** generator.matrix_exponent(columns)
    router = Fraction(columns, 3) * Fraction(4) ** generator.router_exponent(columns)
    print(f"{columns}: gains squared {float(q4):.2f}, {float(f32):.2f}, {float(router):.2f}")
    assert Fraction(98, 100) <= q4 < Fraction(402, 100)
    assert Fraction(1, 4) <= f32 < Fraction(105, 100)
    assert router == 4 * f32
