"""isodiff, rollback and chunks on a device, with a table of what M rows cost there."""

from __future__ import annotations

import pytest

from parity.model.model import synthetic
from parity.protocol import Engine
from parity.runs.probe import Ask, Found
from parity.status import Verdict
from parity_cuda.engine import CudaEngine
from parity_probes.chunks import Chunks
from parity_probes.isodiff import Isodiff
from parity_probes.rollback import Rollback
from tests.probes.asking import run_probe

pytestmark = pytest.mark.gpu

DUT: type[Engine] = CudaEngine
MODELS = {
    "gdn": ("hybrid-64", "gdn"),
    "attn": ("hybrid-64", "attn"),
    "real mix": ("hybrid-64", ""),
    "moe-48": ("moe-48", ""),
}
SIZES = tuple(range(2, 9))
WIDE = (16, 17, 32, 33)


def ask(kind: str, sizes: tuple[int, ...], starts: tuple[int, ...], *, seeds: int = 1) -> Ask:
    name, only = MODELS[kind]
    models = tuple(synthetic(name, 7 + k, "q4", only) for k in range(seeds))
    return Ask(sizes, starts, models)


def table(kind: str, found: Found) -> str:
    """One line an M: calls and milliseconds of one forward, and of M single steps."""
    lines = [f"{kind:8}   M  launches      singly   rows ms  singly ms      x"]
    for cost in found.costs:
        rows, singles = cost.totals
        fast, slow = 1e3 * cost.rows_seconds, 1e3 * cost.single_seconds
        numbers = f"{rows:8,}  {singles:10,}  {fast:8.2f}  {slow:9.2f}  {slow / fast:5.2f}"
        lines.append(f"{kind:8}  {cost.m:2}  {numbers}")
    return "\n".join(lines)


@pytest.mark.parametrize("kind", MODELS)
def test_rows_equal_single_steps(kind: str) -> None:
    found = run_probe(Isodiff, DUT, ask(kind, SIZES, (33, 34, 38)))
    print("\n" + table(kind, found))
    assert found.verdict is Verdict.SAME, found.headline
    assert len(found.lines) == 3 * sum(SIZES)
    assert all(line.endswith("ndiff=0") for line in found.lines)
    assert all(cost.batched for cost in found.costs)


@pytest.mark.parametrize("kind", MODELS)
def test_wide_blocks(kind: str) -> None:
    found = run_probe(Isodiff, DUT, ask(kind, WIDE, (31,)))
    print("\n" + table(kind, found))
    assert found.verdict is Verdict.SAME, found.headline


def test_three_seeds() -> None:
    found = run_probe(Isodiff, DUT, ask("real mix", (4,), (33,), seeds=3))
    assert found.verdict is Verdict.SAME, found.headline
    assert len(found.lines) == 12


@pytest.mark.parametrize("kind", MODELS)
def test_going_back_leaves_no_trace(kind: str) -> None:
    found = run_probe(Rollback, DUT, ask(kind, (2, 4, 8), (33,)))
    print("\n" + "\n".join(found.table))
    print(dict(found.facts)["controls"])
    assert found.verdict is Verdict.SAME, found.headline
    red = 4 if kind in ("gdn", "real mix") else 1
    assert dict(found.facts)["controls"].startswith(f"{red} of {red} red")


def test_chunks() -> None:
    one = ask("moe-48", (2,), (0,))
    found = run_probe(Chunks, DUT, Ask(one.sizes, one.starts, one.models, chunks=(7, 32)))
    assert found.verdict is Verdict.SAME, found.headline
