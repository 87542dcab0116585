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
from parity_cuda.sources import kernel_sources
from tests.engines.cuda.op_runner import OpRunner, WroteOutside
from tests.engines.cuda.twin_cases import TABLES, check_by_twin
from tests.oracle import check
from tests.oracle.inputs import OPS

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


def planted(name: str, old: str, new: str) -> OpRunner:
    """An emulated device with one kernel's text changed."""
    sources = kernel_sources()
    assert sources[name].count(old) == 1
    sources[name] = sources[name].replace(old, new)
    return OpRunner(EmuBackend(EngineSettings(), sources), "planted")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("op", OPS)
def test_kernel_has_the_oracles_bytes(op: str, schedule: str) -> None:
    assert check.check_op(op, runner(schedule).run) > 5


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("op", TABLES)
def test_kernel_has_the_numba_twins_bytes(op: str, schedule: str) -> None:
    assert check_by_twin(op, runner(schedule).run_for) > 1


def test_every_op_is_held_against_something() -> None:
    methods = {name for name, _ in inspect.getmembers(Ops, inspect.isfunction) if name[0] != "_"}
    assert set(OPS) | set(TABLES) == methods


@pytest.mark.parametrize(
    ("op", "name", "old", "new"),
    [
        ("norm_tree", "tree.cuh", "__fadd_rn(x[i], x[i + n])", "__fadd_rn(x[i], x[n + n - 1 - i])"),
        ("router_tree", "router_tree.cu", "__fmul_rn(w[j], x[j])", "__fmul_rn(w[j], x[0])"),
        ("attention_f32", "attention_f32.cu", "__fadd_rn(dot, __fmul_rn(q[j], row[j]))",
         "fmaf(q[j], row[j], dot)"),
        ("expert_f32_matvec", "expert_f32_matvec.cu", "groups > 1 ? rank : 0", "0"),
        ("embed_f32", "embed_f32.cu", "tokens[m] * hidden + j", "tokens[0] * hidden + j"),
    ],
)  # fmt: skip
def test_red_kernel_text_by_twin(op: str, name: str, old: str, new: str) -> None:
    with pytest.raises(check.OpMismatch, match="differ"):
        check_by_twin(op, planted(name, old, new).run_for)


@pytest.mark.parametrize(
    ("op", "name", "old", "new"),
    [
        ("rmsnorm", "rmsnorm.cu", "__fadd_rn(lo0, lo1)", "__fadd_rn(lo0, lo2)"),
        ("f32_matvec", "f32_matvec.cu", "for (int j = 0; j < cols; ++j) acc",
         "for (int j = cols - 1; j >= 0; --j) acc"),
        ("attention_int8", "attention.cuh", "from + t > 0", "t > 0"),
        ("router_topk", "router_topk.cu", "soft[i] > soft[best]", "soft[i] >= soft[best]"),
        ("expert_matvec", "expert_matvec.cu", "groups > 1 ? rank : 0", "0"),
        ("quant8", "quant8.cu", "rintf(", "roundf("),
        ("embed", "q4.cuh", "5.192296858534828e33f", "2.596148429267414e33f"),
    ],
)  # fmt: skip
def test_red_kernel_text(op: str, name: str, old: str, new: str) -> None:
    with pytest.raises(check.OpMismatch, match="differ, first at"):
        check.check_op(op, planted(name, old, new).run)


def test_red_a_race_shows_in_another_schedule() -> None:
    """Without its first barrier rmsnorm is right only where thread 0 comes last."""
    sources = kernel_sources()
    sources["rmsnorm.cu"] = sources["rmsnorm.cu"].replace("  __syncthreads();\n", "", 1)
    assert sources != kernel_sources()
    for schedule, right in (("descending", True), ("ascending", False)):
        settings = EngineSettings(options=SCHEDULES[schedule])
        run = OpRunner(EmuBackend(settings, sources), schedule).run
        with nullcontext() if right else pytest.raises(check.OpMismatch, match="rmsnorm"):
            check.check_op("rmsnorm", run)


def test_red_a_write_past_the_end() -> None:
    with pytest.raises(WroteOutside, match="swiglu"):
        check.check_op("swiglu", planted("swiglu.cu", "if (j >= n) return;", "").run)


def test_red_a_changed_input() -> None:
    fault = planted("add.cu", "out[j] = __fadd_rn(a[j], b[j]);",
                    "out[j] = __fadd_rn(a[j], b[j]);\n  ((float*)a)[j] = 0.0f;")  # fmt: skip
    with pytest.raises(check.OpMismatch, match="changed its inputs"):
        check.check_op("add", fault.run)


def test_red_probabilities_that_are_read() -> None:
    """The exact tier must not fold p into the products: p is NaN here."""
    fault = planted("expert_matvec.cu", "variants & FOLD_P", "true")
    with pytest.raises(check.OpMismatch, match=r"dut [0-9a-f]+ \(nan\)"):
        check.check_op("expert_matvec", fault.run)


def test_sentinels_are_behind_every_output() -> None:
    outputs = runner("ascending").run("add", (np.ones((1, 3), np.float32),) * 2)
    assert outputs[0].tolist() == [[2.0, 2.0, 2.0]]
