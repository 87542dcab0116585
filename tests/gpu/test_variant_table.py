"""The variant table of contract 5 on the device: which key each named departure shows first.

On a GPU libm_exp, libm_sincos and rsqrt are the device's own functions, whose bits no other machine
has: for them the field must be one that their op feeds, and the table records the rest. The other
variants are arithmetic that the contract defines, so that the first key is the CPU's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from parity.cli.options import make_run
from parity.comparison.compare import compare_dumps
from parity.keys import Key
from parity.progress import Progress
from parity.runs.run import Run, Side, SideRun, run_side
from parity.runs.sides import open_side
from parity.spec import EngineSpec, parse_spec
from parity.status import Level
from parity.tree import Tree
from parity.variants import VARIANTS

MODEL, SEED, STEPS = "moe-tiny", 0, 4
# Fields whose op calls the function that a variant swaps for the device's own.
NORMS = {"nrm", "knorm", "qrope", "fnrm", "final_normed"}
EXPS = {"attn", "topk", "topp", "act"}
DEVICE = {"rsqrt": NORMS, "libm_exp": EXPS, "libm_sincos": {"k", "ks", "qrope"}}


class Row(NamedTuple):
    """One line of the table."""

    variant: str
    first: str | None
    differ: int
    total: int
    level: Level

    def text(self) -> str:
        """The line as printed."""
        keys = f"{self.differ:,} of {self.total:,}"
        return f"  {self.variant:<16}{self.first or 'none':<16}{keys:>14}  {self.level}"


def settings(model: str, seed: int, steps: int) -> Run:
    """Decode steps from the ref's state, FFN included."""
    return make_run(
        model=model,
        weights="q4",
        seed=seed,
        tokens=None,
        n=steps,
        fields="+ffn",
        dump_prefill=False,
        hash_name="fnv1a64",
        prefill="ref",
    )


def side(spec: str, run: Run) -> Side:
    """An opened engine."""
    parsed = parse_spec(spec, ["cpu", "cuda", "emu"])
    assert isinstance(parsed, EngineSpec)
    return open_side("dut", parsed, run, Progress(quiet=True))


def compared(spec: str, run: Run, ref: SideRun) -> Tree:
    """The tree of another side against ``ref``, from its state and fed its tokens."""
    return compare_dumps(
        ref.dump, run_side(side(spec, run), run, fed=ref.fed, start=ref.start).dump
    )


def row(name: str, tree: Tree) -> Row:
    """One line of the table."""
    counts = tree.counts
    return Row(name, tree.first, counts.total - counts.same, counts.total, tree.level)


def table(engine: str) -> Iterator[tuple[Row, Row]]:
    """(the engine's line, the CPU's own line) of each variant on the exact tier, then of none."""
    run = settings(MODEL, SEED, STEPS)
    ref = run_side(side("cpu", run), run)
    for name in (*VARIANTS, ""):
        tier = f"exact+{name}" if name else "exact"
        pair = (compared(f"{who}:{tier}", run, ref) for who in (engine, "cpu"))
        of_engine, of_cpu = (row(name or "exact", tree) for tree in pair)
        yield of_engine, of_cpu


def check(of_engine: Row, of_cpu: Row, device: bool) -> None:
    """What the contract promises of one line."""
    if device and of_engine.variant in DEVICE:
        fed = DEVICE[of_engine.variant]
        assert of_engine.first is None or Key.parse(of_engine.first).field in fed, of_engine
        return
    if device and of_engine.variant == "exp_via_double":
        # The device's f64 exp: recorded, and nearly always this platform's.
        assert of_engine.first is None or Key.parse(of_engine.first).field in EXPS, of_engine
        return
    assert of_engine == of_cpu


def print_table(title: str, rows: list[Row], capsys: pytest.CaptureFixture[str]) -> None:
    """The table, past pytest's capture."""
    head = f"  {'variant':<16}{'first key':<16}{'keys differing':>14}  level"
    with capsys.disabled():
        print("\n".join(["", title, head, *(row.text() for row in rows)]))


@pytest.mark.gpu
def test_variants_on_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = list(table("cuda"))
    title = f"cuda:exact+VARIANT against cpu, {MODEL} seed {SEED}, {STEPS} tokens, +ffn"
    print_table(title, [of_engine for of_engine, _ in pairs], capsys)
    for of_engine, of_cpu in pairs:
        check(of_engine, of_cpu, device=True)
    assert pairs[-1][0].first is None


@pytest.mark.gpu
def test_fast_on_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    run = settings("moe-48", 3, STEPS)
    ref = run_side(side("cpu", run), run)
    rows = [row(tier, compared(f"cuda:{tier}", run, ref)) for tier in ("fast", "exact")]
    print_table(f"cuda against cpu, moe-48 seed 3, {STEPS} tokens, +ffn", rows, capsys)
    fast, exact = rows
    assert exact.differ == 0
    assert fast.first is not None
    assert Key.parse(fast.first).field in NORMS | {"kraw"}
    assert (Key.parse(fast.first).pos, Key.parse(fast.first).layer) == (32, 0)


def test_the_same_table_with_the_emulated_kernels() -> None:
    for of_engine, of_cpu in table("emu"):
        check(of_engine, of_cpu, device=False)


@pytest.mark.parametrize(
    "first", ["t32_l0_kraw", "t32_l0_gate", "t33_logits"], ids=["product", "expert", "head"]
)
def test_red_device_function_that_reaches_another_op(first: str) -> None:
    wrong = Row("libm_exp", first, 1, 2, Level.NONE)
    with pytest.raises(AssertionError, match="libm_exp"):
        check(wrong, wrong, device=True)


def test_red_defined_variant_at_another_key() -> None:
    here = Row("fma", "t32_l0_kraw", 5, 9, Level.NONE)
    with pytest.raises(AssertionError):
        check(here._replace(first="t32_l0_v"), here, device=True)
