"""The injection study: seeded faults of every kind, an independent oracle, a control group of equal
pairs, and the same tensors for other tools.

Usage: python -m tests.study.run [--n 500] [--equal 500] [--seed 7] [--kinds "tie,RoPE"]
[--tools PYTHON] [--json FILE] [--fault NUMBER]. ``--fault`` draws and judges one fault again.
Ends 1 when a fault is missed, its key is wrong, or an equal pair is called different.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.study.cases import TAPPED, Outcome
from tests.study.draw import Draw
from tests.study.equal import KEPT, judge_nan_pair, judge_pair
from tests.study.kinds import KINDS, NoSuchFault
from tests.study.report import Study, lines
from tests.study.tools import Folder, ask_tools

BLOCK = 1_000_000  # numbers of one study seed
MOST = 8  # times the quota: how many of a kind are drawn at most
Progress = Callable[[str], None]


def kind_of(number: int) -> str:
    """The kind that a fault's number stands for."""
    return list(KINDS)[number % BLOCK % len(KINDS)]


def judge(number: int) -> Outcome:
    """Draw the fault of a number and judge it. Raises NoSuchFault where none can be planted."""
    outcome = KINDS[kind_of(number)](Draw(number)).judge()
    outcome.kind = kind_of(number)
    return outcome


def numbers(seed: int, kind: str, most: int) -> Iterator[int]:
    """The numbers of one kind, in turn."""
    at = list(KINDS).index(kind)
    return iter(range(seed * BLOCK + at, seed * BLOCK + at + most * len(KINDS), len(KINDS)))


def study_kind(study: Study, kind: str, folder: Folder, say: Progress) -> None:
    """Judge faults of one kind until there are enough that change a tapped byte."""
    left = study.quota
    for number in numbers(study.seed, kind, MOST * study.quota):
        if not left:
            break
        try:
            outcome = judge(number)
        except NoSuchFault:
            study.skipped[kind] = study.skipped.get(kind, 0) + 1
            continue
        if outcome.effect == TAPPED:
            left -= 1
            folder.add(f"f{number}", outcome.pairs)
            outcome.pairs = outcome.pairs[:1]  # the folder holds them
        study.faults.append(outcome)
        if outcome.miss:
            say(f"MISS {number} {kind}: {outcome.what}")


def run_study(
    seed: int,
    faults: int,
    equal: int,
    kinds: Sequence[str] = tuple(KINDS),
    python: str | None = None,
    say: Progress = lambda text: None,
) -> Study:
    """The whole study: ``faults`` effective faults in all, ``equal`` equal pairs."""
    began = time.perf_counter()
    study, folder = Study(seed, -(-faults // len(kinds)), kinds), Folder()
    try:
        for kind in kinds:
            study_kind(study, kind, folder, say)
            say(f"{kind}: {time.perf_counter() - began:.0f} s")
        _add_pairs(study, equal, folder, say)
        study.tools = ask_tools(folder, python)
    finally:
        folder.close()
    study.seconds = time.perf_counter() - began
    return study


def _add_pairs(study: Study, equal: int, folder: Folder, say: Progress) -> None:
    kept = 0
    for number in range(study.seed * BLOCK, study.seed * BLOCK + equal):
        pair = judge_pair(number, kept < KEPT)
        kept += bool(pair.pairs)
        study.equal.append(pair)
    for number in range(study.seed * BLOCK, study.seed * BLOCK + min(equal, KEPT)):
        study.nan.append(judge_nan_pair(number))
    for mark, pairs in (("e", study.equal), ("n", study.nan)):
        for pair in pairs:
            if pair.pairs:
                folder.add(f"{mark}{pair.number}", pair.pairs)
    say(f"{len(study.equal)} equal pairs")


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="study", description="the injection study")
    parser.add_argument("--n", type=int, default=500, help="effective faults in all")
    parser.add_argument("--equal", type=int, default=500, help="equal pairs")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--kinds", default=",".join(KINDS), help="names, with commas between them")
    parser.add_argument(
        "--tools", help="the Python that has the other tools (default: this one; empty: none)"
    )
    parser.add_argument("--json", type=Path, help="write everything to this file")
    parser.add_argument("--fault", type=int, help="judge this one fault again")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the study, print its tables."""
    asked = parsed(arguments)
    if asked.fault is not None:
        return _one(asked.fault)
    kinds = tuple(asked.kinds.split(","))
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or asked.n < 1 or asked.equal < 0 or not 0 <= asked.seed < BLOCK:
        print(f"study: unknown kind {unknown}" if unknown else "study: bad number", file=sys.stderr)
        return 2

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    study = run_study(asked.seed, asked.n, asked.equal, kinds, asked.tools, say)
    print("\n".join(lines(study)))
    if asked.json is not None:
        asked.json.write_text(json.dumps(study.to_json(), indent=1) + "\n")
    return 1 if study.problems else 0


def _one(number: int) -> int:
    try:
        outcome = judge(number)
    except NoSuchFault as reason:
        print(f"fault {number} ({kind_of(number)}): cannot be planted: {reason}")
        return 2
    for name, value in vars(outcome).items():
        if name != "pairs":
            print(f"{name:9} {value}")
    return 1 if outcome.miss else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
