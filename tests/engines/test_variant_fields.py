"""Where each variant can act (``parity.variants.ACTS_ON``), held against what the ops do.

Both engines run in step on the ref's values; a field whose digest differs then is born there.
"""

from __future__ import annotations

from functools import cache

import pytest

from parity.cli.options import make_run
from parity.isolate.lockstep import step_together
from parity.progress import Progress
from parity.runs.run import Run, Side
from parity.runs.sides import open_side
from parity.spec import EngineSpec, parse_spec
from parity.variants import ACTS_ON, VARIANTS

MODELS = (
    ("moe-tiny", "q4", 7),
    ("moe-tiny", "f32", 1),
    ("dense-tiny", "q4", 7),
    ("hybrid-tiny", "q4", 0),
    ("next-tiny", "q4", 7),
)
PROMPT, STEPS = "5,8,13,21,34", 2


@cache
def prepared(model: str, weights: str, seed: int) -> tuple[Run, Side]:
    """The exact ref with its prompt's state, every field dumped."""
    fields = "+ffn,+s" if model.startswith(("hybrid", "next")) else "+ffn"
    run = make_run(
        model=model,
        weights=weights,
        seed=seed,
        tokens=PROMPT,
        n=STEPS,
        fields=fields,
        dump_prefill=False,
        hash_name="fnv1a64",
    )
    return run, opened("cpu", run)


def opened(spec: str, run: Run) -> Side:
    parsed = parse_spec(spec, ["cpu", "emu"])
    assert isinstance(parsed, EngineSpec)
    return open_side("dut", parsed, run, Progress(quiet=True))


def born(spec: str, model: str, weights: str, seed: int) -> set[str]:
    """Fields to which the side gives other bytes on the ref's inputs."""
    run, ref = prepared(model, weights, seed)
    dut = opened(spec, run)
    ref.engine.reset()
    ref.engine.prefill(run.prompt)
    dut.write_state(ref.read_state() or {})
    found = set()
    for token in range(40, 40 + STEPS):
        plan = run.plan()
        mine, theirs = step_together(ref, dut, token, (plan, plan), lambda key: False)
        told = {entry.key: entry for entry in theirs.entries}
        found |= {e.key.field for e in mine.entries if told[e.key].digest != e.digest}
    return found


@cache
def seen(variant: str) -> frozenset[str]:
    """Over all models, the fields in which a variant was born."""
    return frozenset().union(*(born(f"cpu:exact+{variant}", *model) for model in MODELS))


# Their other bits are rare: which fields show them here is chance.
SPARSE = ("libm_exp", "libm_sincos", "exp_via_double", "div_by_inverse")


@pytest.mark.parametrize("variant", VARIANTS)
def test_variant_is_born_where_the_table_says(variant: str) -> None:
    if variant in SPARSE:
        assert seen(variant) <= ACTS_ON[variant]
    else:
        assert seen(variant) == ACTS_ON[variant]


def test_emulated_kernels_are_born_in_the_same_fields() -> None:
    for model in (MODELS[0], *MODELS[3:]):
        assert born("emu:fast", *model) == born("cpu:fast", *model)
        assert born("emu", *model) == set()


def test_red_variant_that_acts_elsewhere_too_is_noticed() -> None:
    leaking = born("tests.red.variant_engines:Leaking:exact+two_pass", *MODELS[0])
    assert leaking - ACTS_ON["two_pass"] > {"kraw", "logits"}
