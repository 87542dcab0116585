"""Fused steps give the bytes of the ops: every family, storage, variant and tier, launched and
replayed; nothing of them goes op by op; what is launched to overlap waits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from parity.errors import InputError
from parity.keys import Key
from parity.model.model import synthetic
from parity.protocol import EngineSettings, Injection, Plan
from parity.variants import TIERS, VARIANTS
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.engine import EmuEngine
from parity_cuda.graph import launches
from tests.cli_runner import run_cli
from tests.engines.cuda.graph_runs import all_fields, model_of
from tests.engines.emu import heads_cases
from tests.engines.kernel_texts import Kernel, all_sources, bodies, kernels

MODELS = (
    *(("moe-tiny", "q4"), ("dense-tiny", "q4"), ("hybrid-tiny", "q4"), ("next-tiny", "q4")),
    *(("moe-tiny", "f32"), ("hybrid-tiny", "f32")),
)
# Between them every kind of layer but the dense FFN; what experts alone read is in the first.
EXPERTS_ALONE = {"router_tree", "scale_assoc", "fold_p", "div_by_inverse"}
VARIED = [
    *(("moe-tiny", variant) for variant in VARIANTS),
    *(("next-tiny", variant) for variant in VARIANTS if variant not in EXPERTS_ALONE),
]
STEPS = 3  # launch by launch, recorded, replayed
Found = list[tuple[str, int, object]]


def engine_of(variants: frozenset[str] = frozenset(), **options: str) -> Any:
    """An emulated engine with these options."""
    return EmuEngine(EngineSettings(variants=variants, options=options))


def told(engine: Any, preset: str, weights: str, count: int) -> Found:
    """Every key of ``count`` steps, then what they left behind."""
    model = synthetic(preset, 7, weights)
    engine.load(model, count)
    plan = Plan(all_fields(model))
    steps = [engine.step(5 + 17 * at, plan) for at in range(count)]
    found: Found = [(str(e.key), e.digest, e.nonfinite) for step in steps for e in step.entries]
    found += [("logits", hash(step.logits.tobytes()), None) for step in steps]
    state = engine.read_state()
    return found + [(name, hash(part.tobytes()), None) for name, part in state.items()]


def differing(
    preset: str, weights: str, variants: frozenset[str], count: int, graph: str
) -> list[str]:
    """Names of what fused steps tell otherwise than the ops."""
    ops = told(engine_of(variants, fuse="off"), preset, weights, count)
    fused = told(engine_of(variants, graph=graph), preset, weights, count)
    assert [one[0] for one in ops] == [one[0] for one in fused]
    return [one[0] for one, other in zip(ops, fused, strict=True) if one != other]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("preset", "weights"), MODELS)
def test_a_tier_has_the_bytes_of_the_ops(preset: str, weights: str, tier: str) -> None:
    assert differing(preset, weights, TIERS[tier], STEPS, "on") == []


@pytest.mark.parametrize(("preset", "variant"), VARIED)
def test_a_variant_has_the_bytes_of_the_ops(preset: str, variant: str) -> None:
    assert differing(preset, "q4", frozenset({variant}), 2, "off") == []


# --- which launches -------------------------------------------------------------------------------

ATTENTION_INT8 = {"fused_heads_int8", "attention_int8_scores", "attention_int8"}
ATTENTION_F32 = {"fused_heads_f32", "attention_f32_scores", "attention_f32", "sigmoid_gate"}
GDN = {"fused_delta_inputs", "fused_delta"}
MOE = {"fused_route", "fused_experts", "fused_down"}
LAUNCHED = {
    "dense-tiny": {"embed", "digest", "fused_project", *ATTENTION_INT8},
    "moe-tiny": {"embed", "digest", "fused_project", *ATTENTION_INT8, *MOE},
    "hybrid-tiny": {"embed", "digest", "fused_project", *ATTENTION_F32, *GDN},
    "next-tiny": {"embed", "digest", "fused_project", *ATTENTION_F32, *GDN, *MOE},
}


def launched(preset: str, plan: Plan | None = None, tier: str = "exact") -> Mapping[str, int]:
    """Launches by kernel of one step of one row."""
    engine = engine_of(TIERS[tier])
    model = model_of(preset)
    engine.load(model, 2)
    engine.backend.counts.clear()
    engine.step(1, Plan(all_fields(model)) if plan is None else plan)
    return engine.counters()


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("preset", LAUNCHED)
def test_nothing_of_a_fused_step_goes_op_by_op(preset: str, tier: str) -> None:
    other = {}
    if "split_keys" in TIERS[tier]:
        other = {f"attention_{kv}": f"attention_{kv}_split_keys" for kv in ("int8", "f32")}
    wanted = {other.get(name, name) for name in LAUNCHED[preset]}
    assert set(launched(preset, tier=tier)) == wanted


@pytest.mark.parametrize(
    ("plan", "fused"),
    [
        (Plan(("x",), tensors=frozenset({Key(0, 1, "x")})), True),
        (Plan(("x",), trace=frozenset({Key(0, 1, "x")})), True),
        (Plan(("x",), inject=Injection(Key(0, 1, "x"), 0)), False),
        (Plan(("x",), replace=lambda _key, _read: None), False),
        (Plan(("x",), places=frozenset({(0, 1)})), False),
    ],
    ids=["tensors", "trace", "inject", "replace", "places"],
)
def test_a_plan_that_changes_a_value_goes_op_by_op(plan: Plan, fused: bool) -> None:
    names = launched("moe-tiny", plan)
    assert ("fused_project" in names, "rmsnorm" in names) == (fused, not fused)


def test_more_rows_go_op_by_op() -> None:
    engine = engine_of()
    engine.load(model_of("moe-tiny"), 4)
    engine.step_rows([1, 2])
    assert not [name for name in engine.counters() if name.startswith("fused_")]


def test_the_header_says_how_steps_are_launched() -> None:
    told = [engine_of(fuse=mode).describe()["launches"] for mode in ("on", "off")]
    assert told == ["fused", "op by op"]
    assert launches(True, "overlapping") == "fused, overlapping"
    assert launches(False, "overlapping") == "op by op, overlapping"
    with pytest.raises(InputError, match=r"emu@fuse=2: not on or off"):
        engine_of(fuse="2")
    result = run_cli("diff", "--dut", "emu@fuse=maybe", "--n", "1", "-q")
    assert (result.status, result.stdout) == (2, "")
    assert "emu@fuse=maybe: not on or off\n  next: write emu@fuse=off" in result.stderr


# --- heads ----------------------------------------------------------------------------------------

KERNELS: dict[str, Kernel] = kernels(all_sources())
SCHEDULES = {
    "ascending": {},
    "descending": {"descending": ""},
    "shuffled": {"shuffled": "3"},
    "threads": {"threads": "2"},
}


def same_but_for_nan_bits(ref: Any, dut: Any) -> bool:
    """Whether two arrays have the same bytes, NaNs counting as one value: which of two NaNs a
    product keeps is the host compiler's choice."""
    if ref.dtype == np.float32:
        ref, dut = (np.where(np.isnan(one), np.float32(np.nan), one) for one in (ref, dut))
    return bool(
        ref.dtype == dut.dtype and ref.shape == dut.shape and ref.tobytes() == dut.tobytes()
    )


@pytest.mark.parametrize(
    "schedule", SCHEDULES, ids=["ascending", "descending", "shuffled", "threads"]
)
@pytest.mark.parametrize("kernel", heads_cases.FORMS)
def test_heads_have_the_bytes_of_the_ops(kernel: str, schedule: str) -> None:
    backend = EmuBackend(EngineSettings(options=SCHEDULES[schedule]))
    count = 0
    for label, fused, by_ops in heads_cases.cases(kernel, KERNELS[kernel].masks()):
        for ref, dut in zip(by_ops(backend, 0xFF), fused(backend, 0xFF), strict=True):
            assert same_but_for_nan_bits(ref, dut), label
            count += 1
    assert count > 100


# --- overlap --------------------------------------------------------------------------------------


def overlapping(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The kernels that any step launches to overlap."""
    names: set[str] = set()
    real = EmuBackend.launch

    def noted(
        self: EmuBackend, kernel: str, *given: Any, overlap: bool = False, **more: Any
    ) -> None:
        names.update({kernel} if overlap else ())
        real(self, kernel, *given, overlap=overlap, **more)

    monkeypatch.setattr(EmuBackend, "launch", noted)
    for preset in LAUNCHED:
        launched(preset)
    return names


# Blocks without work may end at once: the others of the launch wait, and it ends when they do.
IDLE = {"attend"}


def hasty(name: str, sources: Mapping[str, str]) -> str:
    """What is wrong with the way a kernel waits; empty where every thread does before it returns,
    in its own text or in that of a function that it calls first."""
    texts = bodies(sources)
    waits = kernels(sources)[name].calls
    if not {"wait_for_previous", "let_next_start"} <= waits:
        return f"{name} does not wait, or lets nothing start"
    return next((f"{one} may return before it waits" for one in sorted(waits)
                 if one == name or ("wait_for_previous" in texts[one] and one not in IDLE)
                 if returns_first(texts[one], texts)), "")  # fmt: skip


def returns_first(body: str, texts: Mapping[str, str]) -> bool:
    """Whether a ``return`` stands before the first call that waits."""
    waiting = {"wait_for_previous"}
    for _ in range(4):  # calls of calls: kernels are no deeper
        waiting |= {name for name, text in texts.items() if waiting & set(re.findall(r"\w+", text))}
    first = re.search(rf"\b(?:{'|'.join(sorted(waiting))})\b", body)
    return first is None or re.search(r"\breturn\b", body[: first.start()]) is not None


def test_what_overlaps_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    names = overlapping(monkeypatch)
    assert names >= {"fused_heads_int8", "fused_heads_f32", "fused_project", "sigmoid_gate"}
    assert [said for name in sorted(names) if (said := hasty(name, all_sources()))] == []


# Until they have waited these read weights alone.
WEIGHTS_ALONE = {"fused_project", "fused_project_few", "q4_matvec_rows"}


def too_early(launches: Sequence[tuple[str, bool]], sources: Mapping[str, str]) -> set[str]:
    """Of launches (kernel, whether it may overlap), those that a kernel which waits last lets start
    and that may read more than weights until they have waited."""
    texts = {name: sources[f"{name}.cu"] for name, _ in launches if f"{name}.cu" in sources}
    hurried = {
        name
        for name, text in texts.items()
        if -1 < text.find("let_next_start();") < text.find("wait_for_previous();")
    }
    return {after for (name, _), (after, overlaps) in pairwise(launches)
            if name in hurried and overlaps and after not in WEIGHTS_ALONE}  # fmt: skip


def in_order(monkeypatch: pytest.MonkeyPatch, tier: str) -> list[tuple[str, bool]]:
    """The launches of a step of one row, then of two."""
    seen: list[tuple[str, bool]] = []
    real = EmuBackend.launch

    def noted(
        self: EmuBackend, kernel: str, *given: Any, overlap: bool = False, **more: Any
    ) -> None:
        seen.append((kernel, overlap))
        real(self, kernel, *given, overlap=overlap, **more)

    monkeypatch.setattr(EmuBackend, "launch", noted)
    engine = engine_of(TIERS[tier], graph="off")
    engine.load(model_of("hybrid-tiny"), 4)
    engine.step(1, None)
    engine.step_rows([1, 2], None)
    return seen


@pytest.mark.parametrize("tier", TIERS)
def test_what_starts_before_a_wait_reads_weights_alone(
    monkeypatch: pytest.MonkeyPatch, tier: str
) -> None:
    seen = in_order(monkeypatch, tier)
    assert [name for name, _ in seen].count("sigmoid_gate") >= 2
    assert too_early(seen, all_sources()) == set()


def test_red_a_launch_that_reads_more_starts_before_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, seen = all_sources(), in_order(monkeypatch, "exact")
    old = "  wait_for_previous();\n  let_next_start();\n"
    text = sources["fused_heads_f32.cu"]
    assert text.count(old) == 1
    new = text.replace(old, "  let_next_start();\n  wait_for_previous();\n")
    assert too_early(seen, {**sources, "fused_heads_f32.cu": new}) == {"attention_f32_scores"}


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("fused_heads_f32", "  wait_for_previous();\n", "",
         "fused_heads_f32 does not wait, or lets nothing start"),
        ("fused_heads_f32", "  let_next_start();\n", "",
         "fused_heads_f32 does not wait, or lets nothing start"),
        ("fused_heads_f32", "  wait_for", "  if (j >= hd) return;\n  wait_for",
         "fused_heads_f32 may return before it waits"),
        ("sigmoid_gate", "  wait_for", "  if (j >= n) return;\n  wait_for",
         "sigmoid_gate may return before it waits"),
        ("fused_project", "  // step 1", "  if (cols == 0) return;\n  // step 1",
         "fused_project may return before it waits"),
    ],
)  # fmt: skip
def test_red_a_kernel_that_does_not_wait(file: str, old: str, new: str, said: str) -> None:
    sources = all_sources()
    text = sources[f"{file}.cu"]
    assert text.count(old) == 1
    assert hasty(file, {**sources, f"{file}.cu": text.replace(old, new)}) == said
