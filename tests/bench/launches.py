"""Time each launch of a decode step by itself, and what the step gains without it.

Usage: launches.py [--tier TIER] [MODEL ...] (default qwen3-30b-a3b). Needs an NVIDIA device; ends 3
without. A step of one row, fused and overlapping, is listed launch by launch; launches of one
kernel in one shape go into one graph, a layer after the other, so that no cache keeps their
weights. "alone" is that graph's time for each of them, the gap to the next included; "left out" is
what the whole step's graph loses without them. Overlap makes the two differ, and neither adds up.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from parity.errors import NotRunError
from parity.model.model import synthetic
from parity.protocol import EngineSettings
from parity.variants import TIERS
from parity_cuda.engine import CudaEngine
from tests.bench.device import CONTEXT, STEPS, device_us, fill_rows

SPARE = 4  # positions behind CONTEXT


@dataclass(frozen=True)
class Call:
    """One launch, as the backend was asked for it. ``shape``: kernel, grid, block, shared bytes."""

    shape: tuple[str, tuple[int, ...], tuple[int, ...], int]
    args: tuple[Any, ...]
    overlap: bool

    def again(self, launch: Callable[..., None]) -> None:
        """Ask for it once more."""
        kernel, grid, block, shared = self.shape
        launch(kernel, grid, block, self.args, shared, overlap=self.overlap)


def listed(engine: Any) -> list[Call]:
    """The launches of the engine's next step of one row, in their order."""
    backend, calls = engine.backend, list[Call]()
    real = backend.launch

    def launch(kernel: str, grid: Sequence[int], block: Any, args: Sequence[Any], shared: int = 0,
               *, overlap: bool = False) -> None:  # fmt: skip
        threads = tuple(block) if isinstance(block, tuple) else (block,)
        calls.append(Call((kernel, tuple(grid), threads, shared), tuple(args), overlap))
        real(kernel, grid, block, args, shared, overlap=overlap)

    graph, backend.graph, backend.launch = backend.graph, False, launch
    try:
        engine.step(1, None)
    finally:
        backend.graph, backend.launch = graph, real
    return calls


def by_shape(calls: Iterable[Call]) -> dict[tuple[Any, ...], list[Call]]:
    """Launches of one kernel in one shape, shapes in the order of their first."""
    found: dict[tuple[Any, ...], list[Call]] = {}
    for call in calls:
        found.setdefault(call.shape, []).append(call)
    return found


def graph_us(backend: Any, calls: Sequence[Call]) -> float:
    """Median device time of these launches as one graph, microseconds."""
    recorded = backend.record(lambda: [call.again(backend.launch) for call in calls])
    return device_us(backend, recorded, STEPS)


def table(engine: Any) -> list[dict[str, Any]]:
    """A line for each shape, and first one for the whole step."""
    calls = listed(engine)
    whole = graph_us(engine.backend, calls)
    lines: list[dict[str, Any]] = [{"what": "step", "launches": len(calls), "alone": whole}]
    for (kernel, grid, block, shared), group in by_shape(calls).items():
        rest = [call for call in calls if call.shape != group[0].shape]
        sizes = f"{kernel} {'x'.join(map(str, grid))} blocks of {'x'.join(map(str, block))}"
        lines.append({
            "what": f"{sizes}, {shared:,} B", "launches": len(group),
            "alone": graph_us(engine.backend, group) / len(group),
            "left out": (whole - graph_us(engine.backend, rest)) / len(group),
        })  # fmt: skip
    return lines


def show(lines: Sequence[dict[str, Any]]) -> None:
    """Microseconds, by launch; the step's in all."""
    print(f"  {'launches':>8} {'alone us':>10} {'left out':>10}  what")
    for line in lines:
        left = f"{line['left out']:10.2f}" if "left out" in line else " " * 10
        print(f"  {line['launches']:8} {line['alone']:10.2f} {left}  {line['what']}", flush=True)


def main(given: Sequence[str]) -> int:
    """Print a table for each model, then all of them as one line of JSON."""
    parser = argparse.ArgumentParser(description="Time each launch of a decode step.")
    parser.add_argument("models", nargs="*", default=["qwen3-30b-a3b"])
    parser.add_argument("--tier", choices=list(TIERS), default="exact")
    asked = parser.parse_args(given)
    record: dict[str, Any] = {}
    for name in asked.models:
        try:
            engine: Any = CudaEngine(EngineSettings(asked.tier, TIERS[asked.tier]))
        except NotRunError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 3
        record["machine"] = dict(engine.backend.info())
        engine.load(synthetic(name, 7), CONTEXT + SPARE)
        fill_rows(engine)
        engine.step(1, None)  # makes the memory
        record[name] = table(engine)
        print(f"{name}, {asked.tier}")
        show(record[name])
        del engine
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
