"""Pairs of open engines that are compared again and again, and what their births are."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from parity.cli.options import make_run
from parity.keys import Key
from parity.progress import Progress
from parity.runs.engine_diff import Ask, diff_engines
from parity.runs.run import Run, Side
from parity.runs.sides import open_side
from parity.spec import EngineSpec, parse_spec
from parity.tree import Birth, KeyRow, Tree
from tests.red.planted import OpFault, Planted

PROMPT = "5,9,3"
FIRST, LAST = 3, 5  # decoded positions
PLANTED = "tests.red.planted:Planted"


def run_of(model: str, seed: int = 7, n: int = 3, fields: str = "", **options: object) -> Run:
    """A run of a few positions, every field dumped with ``fields="+ffn,+s"``."""
    chosen = {
        **{"weights": "q4", "tokens": PROMPT, "dump_prefill": False, "hash_name": "fnv1a64"},
        **{"prefill": "ref", **options},
    }
    return make_run(model=model, seed=seed, n=n, fields=fields, **chosen)  # type: ignore[arg-type]


def opened(role: str, spec: str, run: Run) -> Side:
    """One side with its model loaded."""
    parsed = parse_spec(spec, ["cpu", "emu"])
    assert isinstance(parsed, EngineSpec)
    return open_side(role, parsed, run, Progress(quiet=True))


def compared(dut: str, run: Run, ref: str = "cpu") -> Tree:
    """``parity diff`` of two specs."""
    return diff_engines(opened("ref", ref, run), opened("dut", dut, run), run, Ask())


@cache
def _planted_pair(model: str, fields: str) -> tuple[Run, Side, Side]:
    run = run_of(model, fields=fields)
    return run, opened("ref", "cpu", run), opened("dut", PLANTED, run)


def planted(
    model: str, *, keys: Iterable[str] = (), ops: Iterable[str] = (), fields: str = ""
) -> Tree:
    """The tree of the short run with these faults in the dut (see ``Planted``)."""
    run, ref, dut = _planted_pair(model, fields)
    engine = dut.engine
    assert isinstance(engine, Planted)
    engine.keys = frozenset(map(Key.parse, keys))
    engine.ops = tuple(map(OpFault.parse, ops))
    return diff_engines(ref, dut, run, Ask())


def births(tree: Tree) -> list[Birth]:
    """The births of a tree in which all were found."""
    assert tree.births is not None
    assert (tree.births.complete, tree.births.reason) == (True, "")
    return tree.births.found


def born(tree: Tree) -> list[str]:
    """Their keys, in dataflow order."""
    return [birth.key for birth in births(tree)]


def born_fields(tree: Tree) -> set[str]:
    """Their fields."""
    return {Key.parse(tag).field for tag in born(tree)}


def row(tree: Tree, tag: str) -> KeyRow:
    """One key's row."""
    return next(row for row in tree.keys if row.key == tag)


def sources(tree: Tree, cause: str) -> set[str]:
    """Where the keys of a cause come from."""
    return {row.source for row in tree.keys if row.cause == cause}
