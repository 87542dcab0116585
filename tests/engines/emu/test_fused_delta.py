"""The fused launches of a Gated DeltaNet step have the bytes of the ops, whatever the order."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from math import sqrt
from typing import Any

import numpy as np
import pytest

from parity.families import dumped_fields
from parity.model.model import synthetic
from parity.protocol import EngineSettings, Plan
from parity.variants import TIERS
from parity_cuda import gdn_layer
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.engine import EmuEngine
from parity_cuda.fused.delta import MOST_ROWS
from parity_cuda.sources import HASH, kernel_sources
from tests.engines.cuda.test_ops_emu import SCHEDULES
from tests.engines.emu import delta_cases
from tests.engines.emu.delta_cases import EPS, SHAPES, Arrays, F, Shape

OPS = ("conv_step", "l2norm", "delta_gates", "delta_step", "headnorm", "norm_tree", "silu_gate")
MASKS = list(delta_cases.masks())
TWO_ROWS = Shape(1, 2, 33, 70, 2)


def needed(*changes: tuple[str, str, str]) -> dict[str, str]:
    """The kernels of these tests alone, with texts changed."""
    sources = kernel_sources()
    for file, old, new in changes:
        assert sources[file].count(old) == 1, (file, old, sources[file].count(old))
        sources[file] = sources[file].replace(old, new)
    own = {f"{op}.cu" for op in OPS} | {"fused_delta.cu", "fused_delta_inputs.cu"}
    hashes = {path.name for path in HASH}
    return {name: text for name, text in sources.items()
            if name in own or (name.endswith(".cuh") and name not in hashes)}  # fmt: skip


@cache
def backend(schedule: str) -> EmuBackend:
    return EmuBackend(EngineSettings(options=SCHEDULES[schedule]), needed())


def compared(device: EmuBackend, shape: Shape, mask: int, special: bool = False) -> list[str]:
    given = delta_cases.data(shape, special)
    with np.errstate(all="ignore"):
        ref = delta_cases.by_ops(backend("ascending"), shape, given, mask)
        return delta_cases.differing(ref, delta_cases.by_launches(device, shape, given, mask))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_two_launches_have_the_bytes_of_the_ops(shape: Shape, schedule: str) -> None:
    for mask in MASKS:
        assert compared(backend(schedule), shape, mask) == [], hex(mask)


@pytest.mark.parametrize("shape", [SHAPES[2], SHAPES[3]], ids=str)
def test_values_that_are_not_finite_and_zeros(shape: Shape) -> None:
    given = delta_cases.data(shape, special=True)
    assert all(np.isnan(given[name]).any() for name in ("qkv", "s"))
    for mask in MASKS:
        assert compared(backend("shuffled 3"), shape, mask, special=True) == [], hex(mask)


@pytest.mark.parametrize("mask", MASKS[:1] + MASKS[6:7], ids=hex)
def test_they_have_the_bytes_of_the_twins(mask: int) -> None:
    shape = Shape(2, 6, 96, 96, 2)
    given = delta_cases.data(shape)
    found = delta_cases.by_launches(backend("shuffled 4"), shape, given, mask)
    assert delta_cases.differing(by_twins(shape, given, mask), found) == []


def by_twins(shape: Shape, given: Arrays, mask: int) -> Arrays:
    """The ops of the CPU engine."""
    ops = {name: getattr(import_module(f"parity_cpu.ops.{name}"), name) for name in OPS}
    out = {name: np.empty(size, F) for name, size in shape.outputs().items()}
    hist, s, at = given["hist"].copy(), given["s"].copy(), shape.key_heads * shape.key_width
    for m in range(shape.rows):
        ops["conv_step"](out["conv"][m], hist, given["qkv"][m], given["conv_w"], mask)
    heads = (shape.rows, shape.key_heads, shape.key_width)
    q, k = (np.ascontiguousarray(out["conv"][:, n * at : (n + 1) * at]) for n in (0, 1))
    ops["l2norm"](out["qn"], q.reshape(heads), F(1.0 / sqrt(shape.key_width)))
    ops["l2norm"](out["kn"], k.reshape(heads), F(1.0))
    gates = (given["a"], given["b"], given["rates"], given["dt_bias"])
    ops["delta_gates"](out["beta"], out["g"], *gates, mask)
    for m in range(shape.rows):
        v = out["conv"][m, 2 * at :].reshape(shape.heads, shape.width)
        row = [out[name][m] for name in ("qn", "kn")]
        ops["delta_step"](out["o"][m], s, *row, v, out["beta"][m], out["g"][m])
    normed = np.empty_like(out["o"])
    norm = ops["norm_tree" if mask & delta_cases.NORM_TREE else "headnorm"]
    wide = (-1, shape.width) if mask & delta_cases.NORM_TREE else normed.shape
    norm(normed.reshape(wide), out["o"].reshape(wide), given["norm"], EPS, mask)
    flat = [each.reshape(shape.rows, -1) for each in (out["gn"], normed, given["z"])]
    ops["silu_gate"](*flat, mask)
    return {**out, "hist": hist, "s": s}


def test_rows_together_are_the_rows_alone() -> None:
    """M rows in a launch leave what M launches of one row leave."""
    shape = Shape(1, 2, 33, 70, 4)
    given, one = delta_cases.data(shape), Shape(1, 2, 33, 70)
    found = delta_cases.by_launches(backend("shuffled 3"), shape, given, 0)
    state = {name: given[name] for name in ("hist", "s")}
    for m in range(shape.rows):
        row = {name: given[name][m : m + 1] for name in ("qkv", "z", "a", "b")}
        alone = delta_cases.by_launches(backend("ascending"), one, {**given, **row, **state}, 0)
        assert all((alone[name][0] == found[name][m]).all() for name in delta_cases.MADE), m
        state = {name: alone[name] for name in ("hist", "s")}
    assert all(state[name].tobytes() == found[name].tobytes() for name in state)


# --- whole steps of M rows ------------------------------------------------------------------------

MODEL = synthetic("hybrid-tiny", 7)
Shown = list[tuple[bytes, list[tuple[str, int]]]]


def shown(fuse: str, fields: tuple[str, ...] | None, tier: str = "exact") -> tuple[Shown, Arrays]:
    """One row, then three, two and one: logits and digests of each, and the state after."""
    engine = EmuEngine(EngineSettings(tier, TIERS[tier], options={"fuse": fuse}))
    engine.load(MODEL, 8)
    plan = None if fields is None else Plan(dumped_fields(MODEL.config, fields))
    steps = [each for tokens in ((3,), (1, 4, 1), (5, 9), (2,))
             for each in (engine.step_rows(tokens, plan) if len(tokens) > 1
                          else [engine.step(*tokens, plan)])]  # fmt: skip
    ran = engine.counters()
    assert ("fused_delta" in ran) == (fuse == "on"), ran
    assert ("delta_step" in ran) == (fuse == "off" or (fields is not None and "s" in fields)), ran
    found = [(step.logits.tobytes(), [(str(each.key), each.digest) for each in step.entries])
             for step in steps]  # fmt: skip
    return found, engine.read_state()


@pytest.mark.parametrize(
    ("fields", "tier"), [(None, "exact"), ((), "exact"), (("s",), "exact"), ((), "fast")]
)
def test_many_rows_are_the_same_op_by_op(fields: tuple[str, ...] | None, tier: str) -> None:
    ref, dut = (shown(fuse, fields, tier) for fuse in ("off", "on"))
    assert ref[0] == dut[0]
    assert [*ref[1]] == [*dut[1]]
    assert all(ref[1][part].tobytes() == dut[1][part].tobytes() for part in ref[1])


def test_more_rows_than_a_launch_takes_go_one_by_one() -> None:
    engine = EmuEngine(EngineSettings())
    engine.load(MODEL, MOST_ROWS + 1)
    engine.step_rows([1] * (MOST_ROWS + 1))
    layers = sum(MODEL.config.is_gdn(layer) for layer in range(MODEL.config.layers))
    ran = engine.counters()
    assert ("fused_delta" in ran, ran["delta_step"]) == (False, (MOST_ROWS + 1) * layers)


def test_red_the_history_of_the_row_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of hist as they are shown are not those that a kernel reads: hist alone differs."""
    ref = shown("on", ())[0]
    real = gdn_layer.recurrence

    def planted(rows: Any, number: int, given: Any, weights: Any, parts: Any, seen: Any) -> Any:
        return real(rows, number, given, weights, parts, np.roll(seen, 1, axis=0))

    monkeypatch.setattr(gdn_layer, "recurrence", planted)
    pairs = zip(ref, shown("on", ())[0], strict=True)
    wrong = [one[0] for row in pairs for one, other in zip(row[0][1], row[1][1], strict=True)
             if one != other]  # fmt: skip
    layers = (0, 1, 2, 4, 5, 6)
    assert wrong == [f"t{pos}_l{layer}_hist" for pos in (1, 2, 3, 4, 5) for layer in layers]


# --- planted faults -------------------------------------------------------------------------------

FOLLOWS = ["o", "gn", "s"]  # what is made of q, k, v, beta and g
OWN = Shape(1, 1, 128, 128, 2)  # S in registers
# File, text, the text in its place, a shape, the names of what differs.
FAULTS = {
    "hist shifts by a row too many": (
        "fused_delta_inputs.cu", "hist[t * channels + c] = channel.tap[t];",
        "hist[t * channels + c] = channel.tap[t + 1];", TWO_ROWS, ["hist"],
    ),
    "k with q's scale": (
        "fused_delta_inputs.cu", "query ? scale : 1.0f", "scale", TWO_ROWS, ["kn", *FOLLOWS],
    ),
    "no silu before the norms": (
        "fused_delta_inputs.cu", "any_silu(conv_sum(tap, w), variants);", "conv_sum(tap, w);",
        TWO_ROWS, ["conv", "qn", "kn", *FOLLOWS],
    ),
    "beta of a": (
        "fused_delta_inputs.cu", "any_sigmoid(b[at], variants)", "any_sigmoid(a[at], variants)",
        TWO_ROWS, ["beta", *FOLLOWS],
    ),
    "another key head": (
        "fused_delta.cu", "key_head = blockIdx.x / (gridDim.x / key_heads);", "key_head = 0;",
        Shape(2, 4, 33, 70, 2), FOLLOWS,
    ),
    "no decay": (
        "fused_delta.cu", "kept = __fmul_rn(cell[i * tile], g);", "kept = cell[i * tile];",
        TWO_ROWS, FOLLOWS,
    ),
    "no decay in registers": (
        "fused_delta.cu", "cell = __fmul_rn(cell, g);", "", OWN, FOLLOWS,
    ),
    "o of k": (
        "fused_delta.cu", "sum = __fadd_rn(sum, __fmul_rn(made, q[i]));",
        "sum = __fadd_rn(sum, __fmul_rn(made, k[i]));", TWO_ROWS, ["o", "gn"],
    ),
    "o of k, from registers": (
        "fused_delta.cu", "made[e + i] = __fmul_rn(cell, wanted[i]);",
        "made[e + i] = __fmul_rn(cell, by[i]);", OWN, ["o", "gn"],
    ),
    "the state of one column everywhere": (
        "fused_delta.cu", "s[(long long)i * value_width + j] = cell[i * tile];",
        "s[(long long)i * value_width + j] = room.cells[i * tile];", TWO_ROWS, ["s"],
    ),
    "the registers of one lane of two are not kept": (
        "fused_delta.cu", "if (own) cells.store", "if (own && OwnCells::row() == 0) cells.store",
        OWN, ["s"],
    ),
    "the other lane's rows first": (
        "fused_delta.cu", "acc, turn + threadIdx.x % DELTA_LANES);",
        "acc, 16 - turn + threadIdx.x % DELTA_LANES);", OWN, FOLLOWS,
    ),
    "a tile left out": (
        "fused_delta.cu", "from < value_width; from += tile)", "from < tile; from += tile)",
        Shape(1, 3, 16, 130), ["o", "gn", "s"],
    ),
    "the norm by its weight first": (
        "fused_delta.cu", "normed(room.o[at], room.r[m], by)", "normed(room.o[at], by, room.r[m])",
        TWO_ROWS, ["gn"],
    ),
    "the gate of the first row": (
        "fused_delta.cu", "from = z + ((long long)m * gridDim.x + blockIdx.x) * value_width;",
        "from = z + (long long)blockIdx.x * value_width;", TWO_ROWS, ["gn"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_red_a_planted_fault_shows_where_it_is(fault: str) -> None:
    file, old, new, shape, wanted = FAULTS[fault]
    device = EmuBackend(EngineSettings(options=SCHEDULES["shuffled 3"]), needed((file, old, new)))
    assert compared(device, shape, 0) == wanted


def test_red_a_fault_in_what_both_forms_share_is_seen_by_the_twins() -> None:
    change = ("delta.cuh", "__fmul_rn(w[t], tap[t])", "__fmul_rn(w[3 - t], tap[t])")
    device = EmuBackend(EngineSettings(), needed(change))
    given = delta_cases.data(TWO_ROWS)
    made = delta_cases.by_launches(device, TWO_ROWS, given, 0)
    found = delta_cases.differing(by_twins(TWO_ROWS, given, 0), made)
    assert found == ["conv", "qn", "kn", *FOLLOWS]


# The text before a barrier that is left out, and after it.
BARRIERS = {
    "before the columns": ("value_width, tile);\n", "    if (threadIdx.x < width) column"),
    "after the columns": ("value_width, tile);\n", "  }\n}\n\n// --- S in registers"),
    "before the registers": ("  if (own) {\n", "    own_cells(cells, room, rows);"),
    "after the registers": ("    own_cells(cells, room, rows);\n", "  } else {"),
    "before the roots": ("[j] = value;\n    }\n  }\n", "}\n\n// The norm's r of every row"),
}


@pytest.mark.parametrize("where", BARRIERS)
def test_red_a_barrier_left_out_shows_in_some_schedule(where: str) -> None:
    before, after = BARRIERS[where]
    barrier = next(text for text in ("    __syncthreads();\n", "  __syncthreads();\n")
                   if before + text + after in kernel_sources()["fused_delta.cu"])  # fmt: skip
    sources = needed(("fused_delta.cu", before + barrier + after, before + after))
    shape = OWN if "registers" in where else Shape(1, 1, 40, 130)
    seen = [
        schedule
        for schedule, options in SCHEDULES.items()
        if compared(EmuBackend(EngineSettings(options=options), sources), shape, 0)
    ]
    assert seen, "no schedule shows the race"
