"""The profile of two sides against a second writing of it: one value at a time, exactly."""

from __future__ import annotations

import bisect
import math
import struct
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import parity
from parity.comparison.profile import ROUNDINGS, FieldTally, bound_of, layers_before, roundoff
from parity.dtypes import FLOATS, bit_patterns, dtype_name
from parity.keys import Key
from parity.model.config import preset
from parity.profiles import Profile, ProfileRow
from parity.protocol import EngineSettings, Plan
from parity.runs import profiling
from parity.runs.settings import run_settings
from parity.tree import Tree
from parity.variants import TIERS
from parity_cpu.engine import Engine

Pairs = list[tuple[Key, np.ndarray, np.ndarray]]
CODES = {"f16": "<e", "f32": "<f", "f64": "<d"}


# --- the second writing ---------------------------------------------------------------------------


def values_of(array: np.ndarray) -> list[float]:
    """The elements as Python floats, read from their bytes."""
    name, bits = dtype_name(array.dtype), bit_patterns(array).tolist()
    if name not in FLOATS:
        return [float(value) for value in array.reshape(-1).tolist()]
    if name == "bf16":
        return [struct.unpack("<f", struct.pack("<I", one << 16))[0] for one in bits]
    width = FLOATS[name].bits // 8
    return [struct.unpack(CODES[name], one.to_bytes(width, "little"))[0] for one in bits]


@cache
def line_of(name: str) -> list[Fraction]:
    """All finite values of a 16-bit format, ascending, both zeros once."""
    patterns = np.arange(FLOATS[name].infinity, dtype=np.uint16)
    code = patterns.view(np.float16).tolist() if name == "f16" else []
    sizes = code or [value_of_bf16(int(one)) for one in patterns]
    above = sorted(Fraction(size) for size in sizes)
    return [-one for one in reversed(above[1:])] + above


def value_of_bf16(bits: int) -> float:
    found: float = struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    return found


def place_on(name: str, value: float) -> int:
    """Where a value stands once it is rounded to the format, ties to the even place."""
    if name == "f32":
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        return -(bits & 0x7FFFFFFF) if bits >> 31 else bits
    line, exact = line_of(name), Fraction(value)
    at = bisect.bisect_left(line, exact)
    if at < len(line) and line[at] == exact:
        return at
    below, above = exact - line[at - 1], line[at] - exact
    if below == above:
        middle = len(line) // 2  # zero: a place is even where its pattern is
        return at if (at - middle) % 2 == 0 else at - 1
    return at - 1 if below < above else at


def brute(keys: Pairs, unit: str) -> dict[str, object]:
    """What a row must say of these keys."""
    told: dict[str, object] = {"keys": len(keys), "equal": 0, "differ": 0, "elements": 0}
    largest, place, ulp, squares, count = -1.0, ("", ()), -1, Fraction(0), 0
    for key, ref, dut in keys:
        alike = (ref.dtype, ref.shape, ref.tobytes()) == (dut.dtype, dut.shape, dut.tobytes())
        told["equal"] += alike  # type: ignore[operator]
        for at, (one, two) in enumerate(zip(values_of(ref), values_of(dut), strict=True)):
            told["elements"] += 1  # type: ignore[operator]
            squares, count = squares + Fraction(one) ** 2, count + 1
            if struct.pack("<d", one) == struct.pack("<d", two):
                continue
            told["differ"] += 1  # type: ignore[operator]
            if abs(two - one) > largest:
                index = tuple(int(part) for part in np.unravel_index(at, ref.shape))
                largest, place = abs(two - one), (key.tag, index)
            if unit == "step":
                ulp = max(ulp, int(abs(two - one)))
            else:
                ulp = max(ulp, abs(place_on(unit, one) - place_on(unit, two)))
    rms = math.sqrt(squares / count) if count else 0.0
    return {
        **told,
        **{"max_ulp": None if ulp < 0 else ulp, "max_diff": max(largest, 0.0), "unit": unit},
        **{"key": place[0], "element": place[1], "rms": pytest.approx(rms, rel=1e-12)},
    }


def check(keys: Pairs, unit: str) -> ProfileRow:
    """Hold a tally of these keys against the second writing."""
    tally = FieldTally(3, "x")
    for key, ref, dut in keys:
        tally.add(key, ref, dut)
    row = tally.row()
    wanted = brute(keys, unit)
    assert {name: getattr(row, name) for name in wanted} == wanted
    if row.rms:
        assert row.relative == row.max_diff / row.rms
    return row


# --- against it -----------------------------------------------------------------------------------


def drawn(seed: int, shape: tuple[int, ...] = (3, 50)) -> np.ndarray:
    """Values of many sizes, both signs, some of them 0."""
    draw = np.random.default_rng(seed)
    values = draw.standard_normal(shape) * 10.0 ** draw.integers(-6, 4, shape)
    values[draw.random(shape) < 0.05] = -0.0
    return values.astype(np.float32)


def nudged(values: np.ndarray, seed: int) -> np.ndarray:
    """The same with some elements moved by a few parts in 2^20, some zeros of the other sign."""
    draw = np.random.default_rng(seed)
    factor = 1 + draw.integers(-3, 4, values.shape) * 2.0**-20
    moved = np.where(draw.random(values.shape) < 0.6, values * factor, values)
    return np.where(moved == 0, np.float32(0.0), moved).astype(values.dtype)


def keys_of(
    make: Callable[[np.ndarray, int], np.ndarray],
) -> Pairs:
    refs = [drawn(seed) for seed in range(3)]
    return [(Key(at, 3, "x"), ref, make(ref, at + 9)) for at, ref in enumerate(refs, 32)]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_one_format(dtype: str) -> None:
    pairs = [(key, ref.astype(dtype), dut.astype(dtype)) for key, ref, dut in keys_of(nudged)]
    row = check(pairs, {"float32": "f32", "float16": "f16"}[dtype])
    assert row.differ > 0


@pytest.mark.parametrize("swapped", [False, True], ids=["dut narrow", "ref narrow"])
@pytest.mark.parametrize("unit", ["f16", "bf16"])
def test_a_half_format_against_f32_is_measured_in_the_half_format(unit: str, swapped: bool) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    half = np.float16 if unit == "f16" else ml_dtypes.bfloat16
    pairs = keys_of(lambda ref, seed: nudged(ref, seed).astype(half))
    pairs = [(key, dut, ref) if swapped else (key, ref, dut) for key, ref, dut in pairs]
    row = check(pairs, unit)
    assert (row.equal, row.unit) == (0, unit)
    assert {row.ref_dtype, row.dut_dtype} == {unit, "f32"}


def test_a_value_and_its_rounding_are_0_ulp_apart_and_differ() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    ref = drawn(1)
    row = check([(Key(0, 3, "x"), ref, ref.astype(ml_dtypes.bfloat16))], "bf16")
    assert row.max_ulp == 0
    assert row.differ > 100
    assert 0 < row.max_diff <= roundoff("bf16") * np.abs(ref).max()


@pytest.mark.parametrize(
    ("ref", "dut"),
    [("int32", "int64"), ("int8", "int8"), ("uint8", "int16"), ("bool", "int8")],
)
def test_integers_count_steps(ref: str, dut: str) -> None:
    values = np.array([[0, 1, 1, 0], [1, 0, 1, 1]])
    moved = values + np.array([[0, 0, 1, 0], [0, 0, 0, 0]])
    row = check([(Key(0, 3, "x"), values.astype(ref), moved.astype(dut))], "step")
    assert (row.max_ulp, row.key, row.element, row.differ) == (1, "t0_l3_x", (0, 2), 1)


def test_the_largest_integers_keep_their_distance() -> None:
    ends = np.array([-(2**63), 2**63 - 1, 5]), np.array([2**63 - 1, -(2**63), 5])
    tally = FieldTally(0, "x")
    tally.add(Key(0, 0, "x"), *ends)
    assert tally.row().max_ulp == 2**64 - 1


def test_what_is_not_finite_is_counted_apart() -> None:
    ref = np.array([1.0, np.inf, np.nan, np.nan, 2.0, np.inf], np.float32)
    dut = np.array([1.5, np.inf, 0.0, np.nan, np.inf, -np.inf], np.float32)
    tally = FieldTally(0, "x")
    tally.add(Key(7, 0, "x"), ref, dut)
    row = tally.row()
    assert (row.differ, row.nonfinite, row.max_diff, row.element) == (4, 3, 0.5, (0,))
    assert row.rms == pytest.approx(math.sqrt((1 + 4) / 2))
    assert tally.judged(preset("dense-tiny"), "f32").outside == "t7_l0_x"


@pytest.mark.parametrize(
    ("ref", "dut", "types"),
    [
        (np.zeros(4, np.int8), np.zeros(4, np.float32), ("int8", "f32")),
        (np.zeros(4, np.float32), np.zeros((2, 2), np.float32), ("f32", "f32")),
        (np.zeros(4, np.float32), np.zeros(5, np.float32), ("f32", "f32")),
    ],
    ids=["kinds", "shapes", "sizes"],
)
def test_what_has_no_common_measure_is_outside(
    ref: np.ndarray, dut: np.ndarray, types: tuple[str, str]
) -> None:
    tally = FieldTally(0, "x")
    tally.add(Key(5, 0, "x"), ref, dut)
    row = tally.judged(preset("dense-tiny"), "f32")
    assert (row.unmeasured, row.equal, row.elements, row.outside) == (1, 0, 0, "t5_l0_x")
    assert (row.ref_dtype, row.dut_dtype) == types


def test_a_large_tensor_is_measured_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = check(keys_of(nudged), "f32")
    monkeypatch.setattr("parity.dtypes.PIECE", 7)
    pieces = check(keys_of(nudged), "f32")
    assert replace(pieces, rms=whole.rms, relative=whole.relative) == whole


# --- the bound ------------------------------------------------------------------------------------


def test_the_bound_grows_by_the_root_of_the_layers_before() -> None:
    dense, hybrid = preset("dense-tiny"), preset("hybrid-tiny")
    assert [layers_before(dense, layer) for layer in (-1, 0, 1, 3, None)] == [0, 0, 1, 3, 4]
    assert [layers_before(hybrid, layer) for layer in (0, 1, 3, 4, None)] == [0, 4, 12, 13, 26]
    assert bound_of(dense, 3, "x", "f32") == 2 * ROUNDINGS["f32"] * 2.0**-24
    assert bound_of(dense, 0, "act", "f32") == 4 * ROUNDINGS["f32"] * 2.0**-24
    assert bound_of(dense, 0, "x", "bf16") == ROUNDINGS["bf16"] * 2.0**-8


@pytest.mark.parametrize("times", [0.999, 1.001])
def test_the_first_key_beyond_the_bound_is_named(times: float) -> None:
    config = preset("dense-tiny")
    ref = np.ones((2, 8), np.float32)
    bound = bound_of(config, 1, "x", "f32")
    tally = FieldTally(1, "x")
    for pos in (32, 33, 34):
        dut = ref.copy()
        if pos > 32:
            dut[1, 3] += np.float32(times * bound)
        tally.add(Key(pos, 1, "x"), ref, dut)
    row = tally.judged(config, "f32")
    assert (row.bound, row.outside) == (bound, "t33_l1_x" if times > 1 else "")


def test_integers_must_be_equal() -> None:
    tally = FieldTally(1, "topk")
    tally.add(Key(1, 1, "topk"), np.array([3, 5], np.int32), np.array([3, 5], np.int32))
    assert tally.judged(preset("moe-tiny"), "f32").outside == ""
    tally.add(Key(2, 1, "topk"), np.array([3, 5], np.int32), np.array([5, 3], np.int32))
    assert tally.judged(preset("moe-tiny"), "f32").outside == "t2_l1_topk"


def test_a_ref_of_zeros_admits_nothing_else() -> None:
    tally = FieldTally(1, "x")
    tally.add(Key(1, 1, "x"), np.zeros(3, np.float32), np.array([0, 1e-40, 0], np.float32))
    row = tally.judged(preset("moe-tiny"), "f32")
    assert (row.relative, row.outside) == (None, "t1_l1_x")


# --- of two engines -------------------------------------------------------------------------------


def brute_rows(n: int) -> dict[str, dict[str, object]]:
    """Every row of ``parity diff --ref cpu --dut cpu:fast``, from two runs of our own."""
    run = run_settings(model="dense-tiny", seed=7, weights="f32", n=n)
    sides = []
    for settings in (EngineSettings(), EngineSettings("fast", TIERS["fast"])):
        engine = Engine(settings)
        engine.load(run.model, run.positions)
        engine.prefill(run.prompt)
        sides.append(engine)
    fed = parity.diff("cpu", "cpu", model="dense-tiny", weights="f32", n=n).tree.run["fed"]
    found: dict[str, Pairs] = {}
    for pos, token in enumerate(map(int, fed.split(",")), run.start):
        every = frozenset(
            Key(pos, layer, field) for layer in (*range(4), None) for field in run.fields
        )
        ref, dut = (side.step(token, Plan(run.fields, tensors=every)).tensors for side in sides)
        for key, value in ref.items():
            name = key.field if key.layer is None else f"l{key.layer}_{key.field}"
            found.setdefault(name, []).append((key, value, dut[key]))
    return {name: brute(keys, "f32") for name, keys in found.items()}


def profiled(**options: object) -> Tree:
    """``parity diff --profile`` of two tiers of one engine."""
    settings = {"model": "dense-tiny", "weights": "f32", "n": 1, "prefill": "ref", "profile": True}
    return parity.diff("cpu", "cpu:fast", **(settings | options)).tree  # type: ignore[arg-type]


def test_every_row_of_a_diff_is_what_two_runs_of_our_own_give() -> None:
    found, wanted = profiled(prefill="own", n=2, level="greedy").profile, brute_rows(2)
    assert found is not None
    assert (found.positions, found.judged, found.lone, found.outside) == (2, False, [], "")
    assert [row.name for row in found.rows] == list(wanted)
    for row in found.rows:
        assert {name: getattr(row, name) for name in wanted[row.name]} == wanted[row.name]
        assert (row.bound, row.outside, row.unmeasured) == (None, "", 0)
    assert found.worst == max(found.rows, key=lambda row: row.relative or 0.0).name


def test_the_values_of_one_step_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[int]] = []
    step = profiling.Again.step

    def watched(self: profiling.Again, pos: int, **options: object) -> object:
        asked.append({key.pos for key in options["tensors"]})  # type: ignore[attr-defined]
        return step(self, pos, **options)

    monkeypatch.setattr(profiling.Again, "step", watched)
    assert profiled(n=3, prefill="own", dump_prefill=True, tokens=[1, 2, 3]).profile is not None
    assert asked == [{pos} for pos in range(6) for _ in ("ref", "dut")]


def test_without_the_option_two_engines_of_one_order_have_none() -> None:
    assert profiled(profile=False).profile is None


def test_a_profile_changes_no_verdict() -> None:
    bare, told = profiled(profile=False), profiled()
    assert told.profile is not None
    assert replace(told, profile=None, reproduce="", seconds=0.0) == replace(
        bare, reproduce="", seconds=0.0
    )


def test_a_green_run_has_a_profile_of_equal_keys() -> None:
    tree = parity.diff("cpu", "cpu", model="dense-tiny", n=1, profile=True).tree
    found = tree.profile
    assert found is not None
    assert (tree.verdict, tree.level) == ("same", "bit")
    assert all((row.equal, row.differ, row.max_diff) == (row.keys, 0, 0.0) for row in found.rows)
    assert sum(row.keys for row in found.rows) == tree.counts.same


def test_a_profile_survives_json() -> None:
    tree = profiled()
    back = Tree.from_json(tree.to_json())
    assert isinstance(back.profile, Profile)
    assert back.profile == tree.profile
