"""Every kernel, emulated and in every order of its threads, against the scalar oracle."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from functools import cache

import numpy as np
import pytest

from parity.protocol import EngineSettings
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.ops import Ops
from parity_cuda.sources import HASH, kernel_sources
from tests.engines.cuda.op_runner import OpRunner, WroteOutside
from tests.engines.cuda.twin_cases import TABLES, check_by_twin
from tests.oracle import check
from tests.oracle.inputs import OPS
from tests.oracle.variants import OF_OP, sets_of

# The header with kernels of its own is no op's.
SHARED = {name for name in kernel_sources() if name.endswith(".cuh")} - {path.name for path in HASH}
SCHEDULES = {
    "ascending": {"ascending": ""},
    "descending": {"descending": ""},
    "shuffled 3": {"shuffled": "3"},
    "shuffled 4": {"shuffled": "4"},
}


@cache
def runner(schedule: str) -> OpRunner:
    """One emulated device a schedule, for all tests."""
    return OpRunner(EmuBackend(EngineSettings(options=SCHEDULES[schedule])), schedule)


def planted(op: str, name: str, old: str, new: str) -> OpRunner:
    """An emulated device with one op's kernel alone, and one text changed."""
    sources = kernel_sources()
    assert sources[name].count(old) == 1
    sources[name] = sources[name].replace(old, new)
    needed = {file: text for file, text in sources.items() if file in SHARED or file.startswith(op)}
    return OpRunner(EmuBackend(EngineSettings(), needed), "planted")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("op", OPS)
def test_kernel_has_the_oracles_bytes(op: str, schedule: str) -> None:
    assert check.check_op(op, runner(schedule).run) > 5


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("op", TABLES)
def test_kernel_has_the_numba_twins_bytes(op: str, schedule: str) -> None:
    assert check_by_twin(op, runner(schedule).run_for) > 1


@pytest.mark.parametrize("op", OF_OP)
def test_kernel_with_variants_has_the_oracles_bytes(op: str) -> None:
    """Every set of variants that may stand together; library functions are the C library's here."""
    run = runner("shuffled 3").run_variants
    counts = [check.check_variants(op, names, run) for names in sets_of(op)]
    assert len(counts) >= len(OF_OP[op])


def test_every_op_is_held_against_something() -> None:
    methods = {name for name, _ in inspect.getmembers(Ops, inspect.isfunction) if name[0] != "_"}
    assert set(OPS) | set(TABLES) == methods


@pytest.mark.parametrize(
    ("op", "name", "old", "new"),
    [
        ("conv_step", "delta.cuh", "(w[t], tap[t])", "(w[3 - t], tap[t])"),
        ("conv_step", "conv_step.cu", "= tap[t + 1]", "= tap[t]"),
        ("decay_rates", "decay_rates.cu", "-ucrt_expf", "ucrt_expf"),
        ("delta_gates", "delta_gates.cu", "any_sigmoid(b[at]", "any_sigmoid(a[at]"),
        ("delta_step", "delta_step.cu", "h / (gridDim.y / key_heads)", "h % key_heads"),
        ("delta_step", "delta_step.cu", "(held[e], g[h])", "(held[e], 1.0f)"),
        ("delta_step", "delta_step.cu", "(cell[i * COLUMNS], k[i])", "(cell[i * COLUMNS], q[i])"),
        ("delta_step", "delta_step.cu", "int i = whole; i < rows; ++i)",
         "int i = whole; i + 1 < rows; ++i)"),
        ("l2norm", "l2norm.cu", "part[j] = __fmul_rn", "part[width - 1 - j] = __fmul_rn"),
        ("l2norm", "chain.cuh", "j = whole; j < n; ++j) acc = __fadd_rn",
         "j = whole; j + 1 < n; ++j) acc = __fadd_rn"),
        ("sigmoid_gate", "sigmoid_gate.cu", "any_sigmoid", "any_silu"),
        ("split_gate", "split_gate.cu", "head[hd + at % hd]", "head[at % hd]"),
    ],
)  # fmt: skip
def test_red_kernel_text_by_twin(op: str, name: str, old: str, new: str) -> None:
    with pytest.raises(check.OpMismatch, match=rf"{op}\[.*in array "):
        check_by_twin(op, planted(op, name, old, new).run_for)


@pytest.mark.parametrize(
    ("op", "name", "old", "new"),
    [
        ("rmsnorm", "norm.cuh", "__fadd_rn(lo0, lo1)", "__fadd_rn(lo0, lo2)"),
        ("f32_matvec", "chain.cuh", "(acc, v.x), v.y), v.z), v.w)", "(acc, v.x), v.z), v.y), v.w)"),
        ("q4_matvec", "q4_row.cuh", "(float)low, eight), x[j], second",
         "(float)low, eight), x[j + 16], second"),
        ("q4_matvec", "q4_rows.cuh", "at.window * 32 + lane >= t.nb)",
         "at.window * 32 + lane >= t.nb - (t.nb > 1))"),
        ("q4_matvec", "q4_sums.cuh", "__fmul_rn(high[r][e], b[m][e])",
         "__fmul_rn(high[r][e], a[m][e])"),
        ("attention_int8", "attention.cuh", "before_each(before, s);", "before;"),
        ("attention_f32", "attention.cuh",
         "if (!first_is_nan) before = fmaxf(before, earlier);", ""),
        ("attention_f32", "attention_f32.cu", "if (d + 3 < hd) four.w = from[3];", ""),
        ("attention_int8", "attention_int8.cu", "j < hd; ++j) sum", "j + 1 < hd; ++j) sum"),
        ("router_topk", "topk.cuh", "other == top && id < best", "other == top && id > best"),
        ("expert_matvec", "expert_matvec.cu", "t.groups > 1 ? list[c] - m * t.ranks : 0", "0"),
        ("quant8", "heads.cuh", "rintf(", "roundf("),
        ("embed", "q4.cuh", "5.192296858534828e33f", "2.596148429267414e33f"),
    ],
)  # fmt: skip
def test_red_kernel_text(op: str, name: str, old: str, new: str) -> None:
    with pytest.raises(check.OpMismatch, match="differ, first at"):
        check.check_op(op, planted(op, name, old, new).run)


def test_red_a_race_shows_in_another_schedule() -> None:
    """Without its first barrier rmsnorm is right only where thread 0 comes last."""
    texts = kernel_sources()
    text = texts["norm.cuh"].replace("  __syncthreads();\n", "", 1)
    assert text != texts["norm.cuh"]
    sources = {name: texts[name] for name in ("rmsnorm.cu", *SHARED)} | {"norm.cuh": text}
    for schedule, right in (("descending", True), ("ascending", False)):
        settings = EngineSettings(options=SCHEDULES[schedule])
        run = OpRunner(EmuBackend(settings, sources), schedule).run
        with nullcontext() if right else pytest.raises(check.OpMismatch, match="rmsnorm"):
            check.check_op("rmsnorm", run)


def test_red_a_write_past_the_end() -> None:
    with pytest.raises(WroteOutside, match="swiglu"):
        check.check_op("swiglu", planted("swiglu", "swiglu.cu", "if (j >= n) return;", "").run)


def test_red_a_changed_input() -> None:
    fault = planted("add", "add.cu", "out[j] = __fadd_rn(a[j], b[j]);",
                    "out[j] = __fadd_rn(a[j], b[j]);\n  ((float*)a)[j] = 0.0f;")  # fmt: skip
    with pytest.raises(check.OpMismatch, match="changed its inputs"):
        check.check_op("add", fault.run)


def test_red_probabilities_that_are_read() -> None:
    """The exact tier must not fold p into the products: p is NaN here."""
    fault = planted("expert_matvec", "expert_matvec.cu", "t.variants & FOLD_P", "true")
    with pytest.raises(check.OpMismatch, match=r"dut [0-9a-f]+ \(nan\)"):
        check.check_op("expert_matvec", fault.run)


def test_red_a_variant_that_is_ignored() -> None:
    fault = planted("combine", "ranks.cuh", "variants & FOLD_P", "false")
    with pytest.raises(check.OpMismatch, match=r"\| fold_p\]"):
        check.check_variants("combine", frozenset({"fold_p"}), fault.run_variants)


def test_sentinels_are_behind_every_output() -> None:
    outputs = runner("ascending").run("add", (np.ones((1, 3), np.float32),) * 2)
    assert outputs[0].tolist() == [[2.0, 2.0, 2.0]]
