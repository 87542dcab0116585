"""Keys in parts on the emulated device: the twin's bytes at every border of a part, in every order
of threads, whatever the grid. Contract 5, split_keys."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from parity.protocol import EngineSettings
from parity.variants import variant_mask
from parity_cuda import ops
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.sources import kernel_sources
from tests.engines.cuda.op_runner import OpRunner
from tests.engines.cuda.shape_cases import Named, attention, check_shape, odd_scores, scored, unseen
from tests.engines.cuda.test_ops_emu import SCHEDULES, SHARED, runner
from tests.engines.cuda.twin_cases import numba_run
from tests.oracle import check

SPLIT, LIBRARY = variant_mask(["split_keys"]), variant_mask(["split_keys", "libm_exp"])
SHAPES = (
    # (n_q, n_kv, hd), keys of the last row, rows
    ((4, 2, 96), 1, 1),
    ((3, 3, 36), 128, 1),
    ((4, 2, 96), 129, 2),
    ((2, 2, 5), 130, 2),
    ((9, 1, 40), 300, 3),
    ((40, 1, 32), 257, 1),
    ((2, 1, 32), 1003, 2),
    ((1, 1, 32), 4400, 1),  # parts of more than one round of their sum
)


def cases(int8: bool) -> Iterator[Named]:
    yield from (attention(*shape, int8) for shape in SHAPES)
    yield from (scored(scores, int8) for scores in odd_scores())
    if not int8:
        yield from (unseen((2, 1, 36), 35, 3), unseen((1, 1, 32), 130, 2))


CASES = [case for int8 in (True, False) for case in cases(int8)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_parts_have_the_twins_bytes(case: Named) -> None:
    for schedule in SCHEDULES:
        run = runner(schedule).run_for
        check_shape(case, lambda *a, run=run: run(*a, SPLIT), SPLIT)
    check_shape(case, lambda *a: run(*a, LIBRARY), LIBRARY)


@pytest.mark.parametrize("warps", [1, 3, 16])
def test_no_number_of_warps_changes_a_bit(warps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many parts at once, the rest in more rounds."""
    monkeypatch.setattr(ops, "PART_WARPS", (warps, warps))
    run = runner("shuffled 3").run_for
    for case in CASES[:8]:
        check_shape(case, lambda *a: run(*a, SPLIT), SPLIT)


def test_each_row_has_the_bytes_of_a_single_one() -> None:
    """Rows see one key more each: their last parts are of other lengths, and a part begins."""
    run = runner("shuffled 4").run_for
    for int8 in (True, False):
        op, _, spec, args = attention((4, 2, 40), 130, 4, int8)
        (together,) = run(op, args, spec, SPLIT)
        for m in range(4):
            queries = [each[m : m + 1] for each in args[: 2 if int8 else 1]]
            given = (*queries, *args[len(queries) : -1], args[-1] + m)
            (alone,) = run(op, given, (((1, 4, 40), np.float32),), SPLIT)
            assert alone[0].tobytes() == together[m].tobytes(), (op, m)


def test_a_cut_is_an_order_of_its_own() -> None:
    """Up to 128 keys it differs from two_pass in l alone; past them in acc too."""
    named = {name: variant_mask([name]) for name in ("two_pass", "split_keys")}
    for keys in (100, 131):
        op, _, spec, args = attention((4, 2, 96), keys, 1, int8=False)
        found = {name: numba_run(op, args, spec, mask)[0] for name, mask in named.items()}
        assert found["two_pass"].tobytes() != found["split_keys"].tobytes()
        both = numba_run(op, args, spec, named["two_pass"] | SPLIT)[0]
        assert both.tobytes() == found["split_keys"].tobytes()


# --- planted faults -------------------------------------------------------------------------------

PARTS = "attention_parts.cuh"
FAULTS = {
    "the last part left out": (PARTS, "min(warps, parts - begin)", "min(warps, parts - begin - 1)"),
    "parts from the last to the first": (
        PARTS, "memory.sums[turn][each][lane]",
        "memory.sums[turn][min(warps, parts - begin) - 1 - each][lane]",
    ),
    "l of the part before": (
        PARTS, "memory.sums[turn][each][DIMS]", "memory.sums[turn][max(0, each - 1)][DIMS]",
    ),
    "the maximum of the first part alone": (
        PARTS, "known_top(scores, peaks, job.keys)",
        "known_top(scores, peaks, min(job.keys, PART))",
    ),
    "the newest key's value left out": (
        "attention_f32.cu", "begin + i < job.keys &&", "begin + i + 1 < job.keys &&",
    ),
    "scores of the part before": (
        PARTS, "= part * PART + threadIdx.x", "= max(0, part - 1) * PART + threadIdx.x",
    ),
    "weights of 32 keys for the next": (PARTS, "add_chunk(sums, mine, keys, chunk, at)",
                                        "add_chunk(sums, mine, keys, chunk, at / 2)"),
    "scores of the first row for all": (
        PARTS, "(long long)blockIdx.z * heads + h;", "(long long)h;",
    ),
}  # fmt: skip


def planted(file: str, old: str, new: str, schedule: str) -> OpRunner:
    """Attention by parts with one text changed."""
    sources = kernel_sources()
    assert sources[file].count(old) == 1, sources[file].count(old)
    sources[file] = sources[file].replace(old, new)
    kept = {name: text for name, text in sources.items() if name in SHARED}
    kept["attention_f32.cu"] = sources["attention_f32.cu"]
    return OpRunner(EmuBackend(EngineSettings(options=SCHEDULES[schedule]), kept), "planted")


def first_wrong(run: OpRunner) -> str:
    """What is said of the first case that has not the twin's bytes."""
    for case in (attention(*shape, int8=False) for shape in SHAPES[2:6]):
        try:
            check_shape(case, lambda *a: run.run_for(*a, SPLIT), SPLIT)
        except check.OpMismatch as error:
            return str(error)
    return ""


@pytest.mark.parametrize("fault", FAULTS)
def test_red_a_part(fault: str) -> None:
    assert first_wrong(planted(*FAULTS[fault], "shuffled 3")).startswith("attention_f32[")


RACES = {
    "weights": ("      weigh_part(mine, job, keys, top, part);\n      __syncwarp();\n",
                "      weigh_part(mine, job, keys, top, part);\n"),
    "sums of parts": ("    __syncthreads();\n    if (warp == 0) {", "    if (warp == 0) {"),
}  # fmt: skip


@pytest.mark.parametrize("race", RACES)
def test_red_what_is_not_waited_for(race: str) -> None:
    texts = (PARTS, *RACES[race])
    seen = {schedule for schedule in SCHEDULES if first_wrong(planted(*texts, schedule))}
    assert seen, "no schedule shows the race"
