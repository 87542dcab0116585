"""A fault planted in a real kernel is reported by the checks that can see it, and by no other."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from parity_cuda.emu import EmuModule
from tests.engines.emu import stress
from tests.engines.emu.stress_builds import Builds
from tests.engines.emu.stress_cases import all_cases
from tests.engines.kernel_texts import all_sources

# What tells the reports of a sanitizer's process apart, by check.
SAID = {
    "asan": "ERROR: AddressSanitizer: heap-buffer-overflow",
    "ubsan": "runtime error: ",
    "tsan": "WARNING: ThreadSanitizer: data race",
    "fault": "kernel ",
    "bounds": "wrote past the end of its output",
}


@dataclass(frozen=True)
class Plant:
    """A text changed in one kernel; ``group``: whose cases show it; ``checks``: who reports it.

    ``luck``: who also reports it when the machine's threads happen to meet.
    """

    file: str
    old: str
    new: str
    group: str
    checks: frozenset[str]
    luck: frozenset[str]


def plant(
    file: str, old: str, new: str, *checks: str, group: str = "", luck: tuple[str, ...] = ()
) -> Plant:
    named = group or file.removesuffix(".cu")
    return Plant(file, old, new, named, frozenset(checks), frozenset(luck))


PLANTS = {
    "a write past the end": plant(
        "add.cu", "if (j >= n) return;", "if (j > n) return;", "bounds", "asan"
    ),
    "a read past the end that changes nothing": plant(
        "swiglu.cu", "  // step 1", "  volatile float ahead = up[j + 1];\n  // step 1", "asan"
    ),
    "a write past a shared array": plant(
        "delta_step.cu", "  // step 3", "  shared_delta[COLUMNS] = 0.0f;\n  // step 3", "ubsan"
    ),
    "a race between threads": plant(
        "norm.cuh", "  }\n  __syncthreads();\n  if", "  }\n  if", "order", "poison", "tsan",
        group="rmsnorm"
    ),
    "a race between blocks that loses counts": plant(
        "tally.cu", "atomicAdd(&counts[at], (unsigned long long)part[at]);",
        "counts[at] += (unsigned long long)part[at];", "tsan", luck=("order", "poison")
    ),
    "shared memory that is read unwritten": plant(
        "norm.cuh", "part[j] = j < d ? __fmul_rn(x[j], x[j]) : 0.0f;",
        "if (j < d) part[j] = __fmul_rn(x[j], x[j]);", "poison", group="norm_tree"
    ),
    "scratch memory that is read unwritten": plant(
        "attention_scores.cuh", "t <= pos + first + m)", "t < pos + first + m)", "poison",
        group="attention_f32"
    ),
    "an output that is read unwritten": plant(
        "combine.cu", "const float ffn = ranks_sum(", "const float ffn = out[at] + ranks_sum(",
        "poison"
    ),
    "an order that decides": plant(
        "router_tree.cu", "const float sum = warp_tree(part, left);",
        "float& sum = part[0];\n"
        "  for (int j = threadIdx.x; j < left; j += 32) if (j > 0) atomicAdd(&sum, part[j]);\n"
        "  __syncwarp();", "order"
    ),
    "a barrier for half of the block": plant(
        "headnorm.cu", "  __syncthreads();\n  const float r",
        "  if (threadIdx.x < 16) __syncthreads();\n  const float r", "fault", "tsan"
    ),
}  # fmt: skip
CASES = {planted.group: all_cases()[planted.group] for planted in PLANTS.values()}
MEMORY = {"asan", "ubsan"}


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """The planted kernels and their headers alone."""
    texts = all_sources()
    for planted in PLANTS.values():
        assert texts[planted.file].count(planted.old) == 1, planted.file
        texts[planted.file] = texts[planted.file].replace(planted.old, planted.new)
    kept = {planted.file for planted in PLANTS.values()}
    # What the cases of the planted kernels launch besides them.
    kept |= {
        "attention_f32.cu",
        "q4_matvec.cu",
        "rmsnorm.cu",
        "norm_tree.cu",
    }
    return {name: text for name, text in texts.items() if name in kept or name.endswith(".cuh")}


@pytest.fixture(scope="module")
def module(builds: Builds, sources: dict[str, str]) -> EmuModule:
    return builds.load(sources)


def said(builds: Builds, sources: dict[str, str], planted: Plant) -> list[tuple[str, str, str]]:
    """Check, case and text of each report of both sanitizers.

    TSan is not asked about an index past the end: what lies there may or may not look like a race.
    """
    groups = {"asan": [*CASES], "tsan": [p.group for p in PLANTS.values() if not p.checks & MEMORY]}
    found = []
    for mode, asked in groups.items():
        results = builds.sanitized(mode, sources, asked)
        for case, text in results.get(planted.group, {"reports": []})["reports"]:
            checks = [check for check, words in SAID.items() if words in text]
            assert checks, text
            found += [(check, case, text) for check in checks]
    return found


@pytest.mark.parametrize("name", PLANTS)
def test_red_the_right_checks_report_it(
    builds: Builds, module: EmuModule, sources: dict[str, str], name: str
) -> None:
    planted = PLANTS[name]
    here = [each for case in CASES[planted.group] for each in stress.reports(module, case)]
    there = said(builds, sources, planted)
    checks = {report.partition(":")[0] for report in here} | {check for check, *_ in there}
    assert checks - planted.luck == planted.checks, (here[:3], there[:3])
    assert all(planted.group in report for report in here)
    assert all(planted.group in case for _, case, _ in there)


@pytest.mark.parametrize(
    "name", [name for name in PLANTS if PLANTS[name].checks & {"asan", "tsan", "ubsan"}]
)
def test_red_the_sanitizer_names_the_line(
    builds: Builds, sources: dict[str, str], name: str
) -> None:
    planted = PLANTS[name]
    text = sources[planted.file]
    at = text.index(planted.new)
    first, last = (text.count("\n", 0, end) + 1 for end in (at, at + len(planted.new)))
    for check, _, report in said(builds, sources, planted):
        lines = [int(line) for line in re.findall(rf"\b{re.escape(planted.file)}:(\d+)", report)]
        assert lines, (check, report)
        if check in ("asan", "ubsan"):  # a race is named at the accesses, not where a barrier lacks
            assert lines[0] in range(first, last + 3), report


def test_red_a_fault_names_thread_and_line(module: EmuModule, sources: dict[str, str]) -> None:
    found = [report for case in CASES["headnorm"] for report in stress.reports(module, case)]
    assert len(found) == len(CASES["headnorm"])
    lines = sources["headnorm.cu"].splitlines()
    line = 1 + next(at for at, text in enumerate(lines) if "16) __syncthreads" in text)
    pattern = rf"fault: headnorm \[.*\]: kernel headnorm: block \(0,0,0\): .*headnorm\.cu:{line}$"
    assert re.match(pattern, found[0]), found[0]
