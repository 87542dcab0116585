"""Search seeds for a ladder on which every rung but exact flips a token: ``parity ladder``'s seed.

    python tests/tools/find_near_tie.py --model moe-48 --n 64 --seeds 0:40

One line a seed: for each rung the position of the first other choice, and how near the tie was
there: the distance of the ref's two largest logits. ``graded`` marks a seed whose rungs flip in
the ladder's order, each later than the one above it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from parity.cli.options import make_run
from parity.progress import Progress
from parity.runs.ladder import RUNGS, first_flip, follow
from parity.runs.run import Run, Side
from parity.runs.sides import open_side
from parity.spec import EngineSpec, parse_spec

Flips = dict[str, tuple[int, int, int] | None]


def near_tie_run(model: str, seed: int, n: int) -> Run:
    """The run that ``parity ladder`` makes, without dumped keys."""
    return make_run(
        model=model,
        weights="q4",
        seed=seed,
        tokens=None,
        n=n,
        fields="",
        dump_prefill=False,
        hash_name="fnv1a64",
    )


def open_rung(engine: str, rung: str, run: Run) -> Side:
    """One rung of an installed engine."""
    spec = parse_spec(f"{engine}:{rung}", [engine])
    assert isinstance(spec, EngineSpec)
    return open_side("dut", spec, run, Progress(quiet=True))


def flips(engine: str, run: Run) -> tuple[Side, dict[int, int], Flips]:
    """The ref (cpu), its choices, and the first flip of each rung of ``engine``."""
    ref = open_rung("cpu", "exact", run)
    choices = follow(ref, run)
    found = {rung: first_flip(choices, follow(open_rung(engine, rung, run), run)) for rung in RUNGS}
    return ref, choices, found


def margin(ref: Side, run: Run, choices: dict[int, int], pos: int) -> float:
    """Distance of the two largest logits of the ref at ``pos``."""
    tokens = [*run.prompt, *(choices[at] for at in range(run.start - 1, pos))]
    ref.engine.reset()
    logits = ref.engine.prefill(tokens)[-1].logits
    second, first = np.sort(logits)[-2:]
    return float(first - second)


def graded(found: Flips) -> bool:
    """Whether the rungs flip in the ladder's order and the last one never does."""
    places = [np.inf if flip is None else flip[0] for flip in found.values()]
    return places[-1] == np.inf and all(low < high for low, high in pairwise(places))


def line(engine: str, run: Run, seed: int) -> str:
    """What the search prints for one seed."""
    ref, choices, found = flips(engine, run)
    cells = []
    for rung, flip in found.items():
        if flip is None:
            cells.append(f"{rung} none")
        else:
            gap = margin(ref, run, choices, flip[0])
            cells.append(f"{rung} t{flip[0]} {flip[1]}/{flip[2]} gap {gap:.1e}")
    graded_too = ["graded"] if graded(found) else []
    return f"seed {seed:<4}  {', '.join([*cells, *graded_too])}"


def main(words: Sequence[str] | None = None) -> None:
    """Print one line a seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--engine", default="cpu")
    parser.add_argument("--model", default="moe-48")
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--seeds", default="0:40", help="first:end")
    chosen = parser.parse_args(words)
    first, end = map(int, chosen.seeds.split(":"))
    for seed in range(first, end):
        run = near_tie_run(chosen.model, seed, chosen.n)
        print(line(chosen.engine, run, seed), flush=True)


if __name__ == "__main__":
    main()
