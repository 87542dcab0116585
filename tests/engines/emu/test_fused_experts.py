"""The fused launches of the MoE FFN have the bytes of the ops, whatever experts were guessed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from importlib import import_module

import numpy as np
import pytest

from parity.errors import ParityBug
from parity.model.model import Around, Model, synthetic
from parity.protocol import EngineSettings, Plan
from parity.variants import EXCLUSIVE, VARIANTS, variant_mask
from parity_cuda.emu.launch import KernelFault
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.engine import EmuEngine
from parity_cuda.fused import experts as launches
from parity_cuda.ops import Ops
from parity_cuda.sources import HASH, kernel_sources
from tests.engines.cuda.graph_runs import all_fields
from tests.engines.cuda.test_ops_emu import SCHEDULES
from tests.engines.emu import moe_cases
from tests.engines.emu.moe_cases import (
    EPS,
    Arrays,
    F,
    Masks,
    Shape,
    asked,
    by_launches,
    by_ops,
)

OPS = ("rmsnorm", "norm_tree", "quant16", "router_topk", "router_tree", "expert_matvec",
       "f32_matvec", "swiglu", "combine", "combine_shared", "shared_gate")  # fmt: skip
SHAPES = moe_cases.cases()
NEAR = Shape(16, 4, 64, 160, "near")
READ = ("rsqrt", "norm_tree", "fma", "libm_exp", "exp_via_double", "router_tree", "scale_assoc",
        "fold_p", "div_by_inverse")  # fmt: skip


def all_but(*names: str) -> tuple[str, ...]:
    """All of them at once but those that exclude another one."""
    return tuple(name for name in READ if name not in names)


TIERS = [(), *((name,) for name in READ), all_but("exp_via_double", "div_by_inverse"),
         all_but("libm_exp", "router_tree")]  # fmt: skip
FIELDS = {"fnrm", "rlogits", "topk", "topp", "gate", "up", "act", "down", "x"}


def needed(*changes: tuple[str, str, str]) -> dict[str, str]:
    """The kernels of these tests alone, or the fused ones with texts changed."""
    sources = kernel_sources()
    for file, old, new in changes:
        assert sources[file].count(old) == 1, (file, old, sources[file].count(old))
        sources[file] = sources[file].replace(old, new)
    own = {f"fused_{launch}.cu" for launch in ("route", "experts", "down")}
    own |= set() if changes else {f"{op}.cu" for op in OPS}
    hashes = {path.name for path in HASH}
    return {name: text for name, text in sources.items()
            if name in own or (name.endswith(".cuh") and name not in hashes)}  # fmt: skip


def device(schedule: str, processors: int, *changes: tuple[str, str, str]) -> EmuBackend:
    made = EmuBackend(EngineSettings(options=SCHEDULES[schedule]), needed(*changes))
    made.processors = processors
    return made


backend = cache(device)


@cache
def wanted(shape: Shape, mask: int) -> Arrays:
    """By ops, which know of no guess."""
    plain = replace(shape, guess=True)
    with np.errstate(all="ignore"):
        return by_ops(backend("ascending", 1), plain, moe_cases.data(plain), mask)


def compared(dut: EmuBackend, shape: Shape, mask: int = 0) -> tuple[set[str], bool]:
    """Fields with other bytes, and whether an expert was made anew."""
    mask = asked(shape, mask)
    with np.errstate(all="ignore"):
        found, anew = by_launches(dut, shape, moe_cases.data(shape), Masks(mask, mask, mask))
    return set(moe_cases.differing(wanted(replace(shape, guess=True), mask), found)), anew


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_three_launches_have_the_bytes_of_the_ops(shape: Shape, schedule: str) -> None:
    for processors in (1, 7):
        assert compared(backend(schedule, processors), shape)[0] == set(), processors


@pytest.mark.parametrize("names", TIERS, ids=" ".join)
def test_under_every_variant(names: tuple[str, ...]) -> None:
    mask = variant_mask(names)
    tree = "router_tree" in names
    for shape in (SHAPES[0], replace(NEAR, shared=True)):
        for guess in {not tree, False}:
            dut = backend("shuffled 3", 7)
            assert compared(dut, replace(shape, guess=guess), mask)[0] == set(), guess


def test_the_variants_above_are_those_that_an_op_reads() -> None:
    others = {"split_k", "unpaired", "libm_sincos", "two_pass", "split_keys", "zero_point"}
    assert {*VARIANTS} - {*READ} == others
    assert not any({*names}.issuperset(pair) for names in TIERS for pair in EXCLUSIVE)


@pytest.mark.parametrize("tile", [1, 5, 16])
def test_no_tile_changes_a_bit(tile: int) -> None:
    for shape in (SHAPES[1], SHAPES[4], NEAR):
        dut = backend("shuffled 4", -(-shape.hidden // tile))
        assert compared(dut, shape)[0] == set()


def test_near_ties_are_made_anew_and_ties_are_not() -> None:
    """A guess by another order of sums is wrong where logits differ by less than their rounding;
    one by the logits themselves where these differ and probabilities do not."""
    dut = backend("shuffled 3", 7)
    alone = Shape(16, 8, 32, 160, "near", guess=False)
    for shape in (NEAR, replace(NEAR, shared=True, norm=False), alone):
        assert compared(dut, shape) == (set(), True)
    for kind in ("equal", "random"):
        for guess in (True, False):
            assert compared(dut, replace(NEAR, data=kind, guess=guess)) == (set(), False)


def test_of_many_experts_the_largest_are_guessed() -> None:
    """More than the block has pairs of threads, and no multiple of anything."""
    dut = backend("shuffled 3", 7)
    for kind in ("random", "equal"):
        shape = Shape(131, 10, 32, 64, kind)
        for guess in (True, False):
            assert compared(dut, replace(shape, guess=guess)) == (set(), False)


@pytest.mark.parametrize(("guess", "mask"), [(True, "0x200"), (False, "0x0")])
def test_red_a_guess_where_none_belongs(guess: bool, mask: str) -> None:
    """A sum in a quick order may be a guess, never the router's tree; and the other way round."""
    any_, router = np.zeros(1, np.float32), np.zeros((2, 32), np.float32)
    routing = launches.Routing(any_, any_, any_, any_, any_ if guess else None)
    with pytest.raises(ParityBug, match=f"^fused_route: guess {guess} under variants {mask}$"):
        launches.route(
            Ops(backend("ascending", 1)), routing, any_, any_, router, EPS, int(mask, 16)
        )


GUESS = ("topk.cuh", "if (at % 2 == 0 && e < experts && before < ranks) ids[(int)before] = e;")


@pytest.mark.parametrize(
    "new",
    [
        "if (e < experts && experts - 1 - before < ranks) ids[experts - 1 - (int)before] = e;",
        "if (e < ranks) ids[e] = 0;",
    ],
)
def test_any_guess_gives_the_same_bytes(new: str) -> None:
    """The last experts instead of the first, one expert for all."""
    dut = device("shuffled 3", 7, (*GUESS, new))
    for shape in (SHAPES[0], SHAPES[4], replace(SHAPES[0], guess=False)):
        for mask in (0, variant_mask(["fold_p", "scale_assoc"])):
            assert compared(dut, shape, mask) == (set(), True)


def test_they_have_the_bytes_of_the_twins() -> None:
    found, _ = by_launches(backend("shuffled 4", 7), NEAR, moe_cases.data(NEAR), Masks(0, 0, 0))
    assert moe_cases.differing(by_twins(NEAR), found) == []


def by_twins(shape: Shape) -> Arrays:
    """The ops of the CPU engine."""
    given, ranks, inter = moe_cases.data(shape), shape.ranks, shape.inter
    op = {name: getattr(import_module(f"parity_cpu.ops.{name}"), name) for name in OPS}

    def made(*sizes: int, dtype: type = np.float32) -> np.ndarray:
        return np.empty(sizes, dtype)

    fnrm, rlogits = made(1, shape.hidden), made(1, shape.experts)
    op["rmsnorm"](fnrm, given["ores"], given["norm"], EPS, 0)
    op["f32_matvec"](rlogits, given["router"], fnrm, 0)
    ids, probs = made(1, ranks, dtype=np.int32), made(1, ranks)
    op["router_topk"](ids, probs, rlogits, shape.norm, 0)
    fields = {"fnrm": fnrm, "rlogits": rlogits, "topk": ids, "topp": probs}
    row = fnrm.reshape(1, 1, -1)
    for name, width in (("gate", inter), ("up", inter), ("act", inter), ("down", shape.hidden)):
        fields[name] = out = made(1, ranks, width)
        if name == "act":
            op["swiglu"](out[0], fields["gate"][0], fields["up"][0], 0)
            row = out
            continue
        q, scale = made(*row.shape, dtype=np.int16), made(*row.shape[:2], row.shape[2] // 32)
        op["quant16"](q[0], scale[0], row[0], 0)
        matrix = (given[f"{name}.d"], given[f"{name}.qs"])
        op["expert_matvec"](out, *matrix, ids, probs, q, scale, 0)
    fields["x"] = made(1, shape.hidden)
    op["combine"](fields["x"], given["ores"], fields["down"], probs, 0)
    return fields


# --- a whole engine -------------------------------------------------------------------------------


class Ties(Around):
    """A model whose routers' rows differ by less than the rounding of their sums, or by nothing."""

    def __init__(self, model: Model, near: float) -> None:
        super().__init__(model)
        self.near = near

    def tensor(self, name: str) -> np.ndarray:
        """Every row of a router is the first, and nearly so."""
        made = self.model.tensor(name)
        if not name.endswith(".router"):
            return made
        noise = np.random.default_rng(len(name)).standard_normal(made.shape) * self.near
        return (made[:1] * (1 + noise)).astype(F)


@pytest.mark.parametrize("near", [0.0, 1e-7])
@pytest.mark.parametrize("preset", ["moe-tiny", "next-tiny"])
def test_a_model_of_ties_has_the_bytes_of_the_ops(preset: str, near: float) -> None:
    """Launched, recorded, replayed; and where experts were made anew, they were."""
    model, told, wrong = Ties(synthetic(preset, 7, "q4"), near), [], 0
    for options in ({"fuse": "off"}, {"graph": "on"}):
        engine = EmuEngine(EngineSettings(options=options))
        engine.load(model, 3)
        found = [engine.step(token, Plan(all_fields(model))) for token in (5, 22, 39)]
        told.append([(str(e.key), e.digest) for step in found for e in step.entries])
        told[-1] += [("logits", hash(step.logits.tobytes())) for step in found]
    pool = engine._decoder.one
    for layer in range(model.config.layers):
        guess, ids = (pool._buffers[layer, name][0] for name in ("guess", "ids"))
        wrong += (np.argsort(-guess, kind="stable")[: ids.size] != ids).any()
    assert told[0] == told[1]
    assert wrong > 0 if near else wrong == 0


# --- red ------------------------------------------------------------------------------------------

AFTER_ACT = {"down", "x"}
FAULTS = {
    "a guess that is taken for granted": (
        ("topk.cuh", "&& ahead == ranks - 1;", "|| true;"), NEAR,
        {"topk", "topp", "gate", "up", "act", *AFTER_ACT},
    ),
    "an order of ranks that is not asked for": (
        ("topk.cuh", "right = right && (p > next || (p == next && ids[r] < ids[r + 1]));", ""),
        SHAPES[0], {"topk", "topp", "gate", "up", "act", *AFTER_ACT},
        (*GUESS, "if (e < experts && before < ranks)\n"
         "      ids[before < 2 ? 1 - (int)before : (int)before] = e;"),
    ),
    "gate, up and act made anew for one block alone": (
        ("down.cuh", "if (blockIdx.x > 0) continue;", "if (blockIdx.x != 99) continue;"),
        NEAR, {"gate", "up", "act"},
    ),
    "weights of the guess after all": (
        ("down.cuh", "room.ids[r] * of.rows.hidden", "room.guess[r] * of.rows.hidden"), NEAR,
        AFTER_ACT,
    ),
    "a router row's sum by tree": (
        ("fused_experts.cu", "chain_rows(out, shared, x, count, hidden, stride, variants);",
         "shared[hidden] = 0.0f;\n  if (threadIdx.x < count) out[threadIdx.x] = chain_sum(shared "
         "+ threadIdx.x * stride, 32, 0.0f);"),
        SHAPES[1], {"rlogits", "topp", "topk", "gate", "up", "act", *AFTER_ACT},
    ),
    "a router row's sum by another tree": (
        ("route.cuh", "sum = __fadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, by));",
         "sum = __fadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, by > 1 ? by : 0));"),
        replace(SHAPES[1], guess=False),
        {"rlogits", "topp", "topk", "gate", "up", "act", *AFTER_ACT},
    ),
    "gate and up changed over": (
        ("experts.cuh", "warp < 4 ? m.gate_qs : m.up_qs", "warp < 4 ? m.up_qs : m.gate_qs"),
        SHAPES[0], {"gate", "up", "act", *AFTER_ACT},
    ),
    "a block left out": (
        ("down.cuh", "if (b >= room.nb) continue;", "if (b + 1 >= room.nb) continue;"), SHAPES[0],
        AFTER_ACT,
    ),
    "a block of gate and up left out": (
        ("experts.cuh", "chain_sum(terms + i * stride, nb, 0.0f)",
         "chain_sum(terms + i * stride, nb - 1, 0.0f)"),
        SHAPES[0], {"gate", "up", "act", *AFTER_ACT},
    ),
    "the residual left out": (
        ("fused_down.cu", "x[first + me] = __fadd_rn(before, ffn);", "x[first + me] = ffn;"),
        SHAPES[0], {"x"},
    ),
    "the shared expert first": (
        ("ranks.cuh", "return __fadd_rn(ffn, __fmul_rn(gs, sh));",
         "return __fadd_rn(ffn, __fmul_rn(sh, __fadd_rn(gs, gs)));"),
        SHAPES[0], {"x"},
    ),
    "ranks from the last": (
        ("fused_down.cu", "ranks_sum(room.sums + me, tile, room.probs, ranks, variants);",
         "ranks_sum(room.sums + me + (ranks - 1) * tile, -tile, room.probs, ranks, variants);"),
        SHAPES[4], {"x"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_red_a_text(fault: str) -> None:
    change, shape, fields, *more = FAULTS[fault]
    assert compared(device("shuffled 3", 7, *more), shape)[0] == set()
    wrong, _ = compared(device("shuffled 3", 7, change, *more), shape)
    assert wrong, "the fault does not show"
    assert wrong <= fields, wrong


TERMS = "    barrier_sync(TERMS_BARRIER, TERM_THREADS);\n"
RACES = {
    "router products": ("route.cuh", "  __syncthreads();\n  if (row < count) out[row] = chain_sum",
                        "  if (row < count) out[row] = chain_sum"),
    "guesses": ("fused_experts.cu", "  __syncthreads();\n  room.ask(", "  room.ask("),
    "weights of gate and up": ("fused_experts.cu", "    __syncwarp();\n    room.make",
                               "    room.make"),
    "terms of gate and up": ("fused_experts.cu", "  __syncthreads();\n  room.finish(",
                             "  room.finish("),
    "inputs of down": ("fused_down.cu", f"    copy_wait<0>();\n{TERMS}", "    copy_wait<0>();\n"),
    "terms of down": ("fused_down.cu", f"  }} else if (makes) {{\n{TERMS}  }}\n", "  }\n"),
    "sums of down": ("fused_down.cu", "  __syncthreads();\n  if (!shared_right[0])",
                     "  if (!shared_right[0])"),
}  # fmt: skip


@pytest.mark.parametrize("race", RACES)
def test_red_a_barrier_left_out_shows_in_some_schedule(race: str) -> None:
    assert any(map(partial(raced, race), SCHEDULES)), "no schedule shows the race"


def raced(race: str, schedule: str) -> bool:
    """Whether other bytes come, or threads that wait for others which have gone another way."""
    dut = device(schedule, 7, RACES[race])
    try:
        return any(compared(dut, shape)[0] for shape in (SHAPES[0], NEAR))
    except KernelFault as fault:
        return "waits in __syncthreads" in str(fault)
