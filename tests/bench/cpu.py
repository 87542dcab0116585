"""How fast the CPU engine's products read weights, beside what the machine's memory gives.

Usage: cpu.py [N] [--threads T] [--json FILE]. Matrices of the qwen3-30b-a3b shape, more bytes than
caches hold, go through the engine's ops N times (default 7); before each round the same threads
read plain memory. Printed are medians, and medians of the ratios within a round. Times are wall
times; with one thread they are that thread's CPU times, which a busy machine changes least.
``--json`` adds a line with every figure to FILE. What values the weights have changes no time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_name
from numba import njit, prange

from parity.model.config import PRESETS, ModelConfig
from parity.variants import TIERS, variant_mask
from parity_cpu.ops.expert_matvec import expert_matvec
from parity_cpu.ops.f32_matvec import f32_matvec
from parity_cpu.ops.q4_matvec import q4_matvec
from parity_cpu.variants import FOLD_P

RUNS = 7
MODEL = "qwen3-30b-a3b"
LAYERS = 8  # distinct sets of the matrices that every token reads: 93 MB at that shape
STREAM = 1 << 29  # bytes
F = np.float32

Array = np.ndarray[Any, np.dtype[Any]]
Round = dict[str, tuple[int, float]]  # name to bytes and seconds


@dataclass
class Weights:
    """Matrices of one shape; ``q4`` gives (d, qs) with as many leading sizes as asked for."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def q4(self, *shape: int) -> tuple[Array, Array]:
        """d uint16 and qs uint8 of Q4_0 rows; scales around 1/64."""
        *rows, columns = shape
        d = self.rng.integers(0x2000, 0x2800, (*rows, columns // 32), dtype=np.uint16)
        return d, self.rng.integers(0, 256, (*rows, columns // 2), dtype=np.uint8)

    def floats(self, *shape: int) -> Array:
        """float32 of size 1 or so."""
        return self.rng.standard_normal(shape, dtype=F)


@njit  # type: ignore[untyped-decorator]
def read_part(words: Any) -> Any:
    """xor of words: LLVM reads them in the widest registers there are."""
    total = np.uint64(0)
    for i in range(words.shape[0]):
        total ^= words[i]
    return total


@njit(parallel=True)  # type: ignore[untyped-decorator]
def read_all(words: Any, sums: Any) -> None:
    """xor of words, a part for each of ``sums``: reads memory and does little else."""
    part = words.shape[0] // sums.shape[0]
    for p in prange(sums.shape[0]):
        sums[p] = read_part(words[p * part : (p + 1) * part])


class Token:
    """The products of one decode step, by op, with the bytes of weights that each reads."""

    def __init__(self, config: ModelConfig, mask: int) -> None:
        made = Weights()
        self.config, self.mask = config, mask
        hidden, wide = config.hidden, config.n_q * config.head_dim
        narrow = config.n_kv * config.head_dim
        shapes = ((wide, hidden), (narrow, hidden), (narrow, hidden), (hidden, wide))
        self.attention = [[made.q4(*shape) for shape in shapes] for _ in range(LAYERS)]
        self.routers = [made.floats(config.experts, hidden) for _ in range(LAYERS)]
        widths = ((config.inter, hidden), (config.inter, hidden), (hidden, config.inter))
        self.experts = [made.q4(config.experts, *shape) for shape in widths]
        self.head = made.q4(config.vocab, hidden)
        self.rng = made.rng
        self.x = {columns: made.floats(1, columns) for columns in {hidden, wide}}

    def layers(self) -> Iterator[tuple[str, int, Callable[[], None]]]:
        """(op, bytes, call) of all products of LAYERS layers; experts are drawn anew."""
        for attention, router in zip(self.attention, self.routers, strict=True):
            for d, qs in attention:
                yield "q4_matvec", d.nbytes + qs.nbytes, self._q4(d, qs)
            out = np.empty((1, len(router)), F)
            x = self.x[router.shape[1]]
            yield (
                "f32_matvec",
                router.nbytes,
                lambda o=out, w=router, x=x: f32_matvec(o, w, x, self.mask),
            )
            yield from self._experts()

    def lm_head(self) -> tuple[int, Callable[[], None]]:
        """Bytes and call of the last product."""
        d, qs = self.head
        return d.nbytes + qs.nbytes, self._q4(d, qs)

    def _q4(self, d: Array, qs: Array) -> Callable[[], None]:
        out, x = np.empty((1, len(d)), F), self.x[2 * qs.shape[1]]
        return lambda: q4_matvec(out, d, qs, x, self.mask)

    def _experts(self) -> Iterator[tuple[str, int, Callable[[], None]]]:
        config = self.config
        chosen = self.rng.permutation(config.experts)[: config.top_k]
        ids, probs = chosen[None].astype(np.int32), np.full((1, config.top_k), F(0.125))
        for number, (d, qs) in enumerate(self.experts):
            down = number == 2
            groups, columns = config.top_k if down else 1, 2 * qs.shape[2]
            q = self.rng.integers(-32767, 32768, (1, groups, columns)).astype(np.int16)
            scales = np.full((1, groups, columns // 32), F(0.01))
            out = np.empty((1, config.top_k, d.shape[1]), F)
            given = (out, d, qs, ids, probs, q, scales, self.mask & ~(0 if down else FOLD_P))
            size = (d[0].nbytes + qs[0].nbytes) * config.top_k
            yield "expert_matvec", size, lambda given=given: expert_matvec(*given)


def timed(call: Callable[[], None]) -> float:
    """Seconds of one call: of this thread alone where there is no other."""
    clock = time.thread_time if numba.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    call()
    return clock() - begin


def one_round(token: Token, words: Array, sums: Array) -> Round:
    """Bytes and seconds: of plain reading, of every op in the layers, of lm_head, of a token."""
    found: Round = {"memory": (words.nbytes, timed(lambda: read_all(words, sums)))}
    for op, size, call in token.layers():
        before = found.get(op, (0, 0.0))
        found[op] = (before[0] + size, before[1] + timed(call))
    layers = [found[op] for op in found if op != "memory"]
    size, call = token.lm_head()
    found["lm_head"] = (size, timed(call))
    scale = token.config.layers / LAYERS
    found["token"] = (
        round(size + scale * sum(size for size, _ in layers)),
        found["lm_head"][1] + scale * sum(seconds for _, seconds in layers),
    )
    return found


def table(rounds: list[Round]) -> list[str]:
    """Lines: GB/s as the median of the rounds, and of each round's ratio to plain reading."""
    lines = [f"{'':14}  {'MB':>9}  {'ms':>9}  {'GB/s':>7}  {'of memory':>9}"]
    for name in rounds[0]:
        speeds = [size / seconds / 1e9 for size, seconds in (found[name] for found in rounds)]
        shares = [
            speed / (found["memory"][0] / found["memory"][1] / 1e9)
            for speed, found in zip(speeds, rounds, strict=True)
        ]
        size = rounds[0][name][0]
        seconds = median(found[name][1] for found in rounds)
        lines.append(
            f"{name:14}  {size / 1e6:9.1f}  {seconds * 1e3:9.2f}  {median(speeds):7.2f}  "
            f"{median(shares):9.1%}"
        )
    return lines


def machine() -> dict[str, str | float]:
    """What a figure cannot be read without."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": platform.platform(),
        "processor": str(get_host_cpu_name()),
        "threads": numba.get_num_threads(),
        "load": os.getloadavg()[0],
        "numba": numba.__version__,
    }


def main(arguments: list[str]) -> int:
    """Measure both tiers and print a table each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=RUNS)
    parser.add_argument("--threads", type=int, default=numba.get_num_threads())
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    if given.runs < 1:
        parser.error(f"the number of runs must be 1 or more, got {given.runs}")
    if not 1 <= given.threads <= numba.config.NUMBA_NUM_THREADS:
        parser.error(f"threads must be 1 to {numba.config.NUMBA_NUM_THREADS}, got {given.threads}")
    numba.set_num_threads(given.threads)
    words, sums = np.ones(STREAM // 8, np.uint64), np.empty(numba.get_num_threads(), np.uint64)
    told = machine()
    print(", ".join(f"{name} {value}" for name, value in told.items()))
    for tier, names in TIERS.items():
        token = Token(PRESETS[MODEL], variant_mask(names))
        one_round(token, words, sums)  # compiles, and touches every page
        rounds = [one_round(token, words, sums) for _ in range(given.runs)]
        print(f"\n{MODEL}, tier {tier}, one row, medians of {given.runs}; load now", end=" ")
        print(f"{os.getloadavg()[0]:.1f}")
        print("\n".join(table(rounds)))
        if given.json:
            with given.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**told, "tier": tier, "rounds": rounds}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
