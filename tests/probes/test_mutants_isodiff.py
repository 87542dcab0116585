"""What the probes say of a small engine and of each fault in it, to the letter."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from parity.model.generator import prompt_tokens
from parity.protocol import Step
from parity.runs.run import greedy
from parity.status import Verdict
from parity_probes.blocks import Outcome, judge
from parity_probes.isodiff import Isodiff, _publish, _Tally, _wrong
from tests.probes.probe_words import (
    ATTENTION,
    BOTH,
    EVERY,
    NORM,
    PATH_2,
    PATH_3,
    RED,
    said,
    text_of,
)
from tests.probes.small_engine import Small, opened, run_small, small_model

# --- isodiff --------------------------------------------------------------------------------------


def test_isodiff_green() -> None:
    found = run_small(Isodiff, starts=(3, 4), more=3)
    headline = "M = 2, 3: 10 of 10 columns, 240 of 240 keys"
    assert said(found) == (Verdict.SAME, headline, None, "", 240)
    assert found.brief == "M 2, 3, 10 of 10 columns, state equal, control fired"
    assert (found.name, found.table) == ("isodiff", [])
    facts = dict(found.facts)
    speed = facts.pop("speed")
    assert re.fullmatch(r"M = 2: .* singly \(\d+\.\d x\); M = 3: .* singly \(\d+\.\d x\)", speed)
    assert facts == {
        "logits": "0 of 320 differ, as uint32",
        "places": "position 4 stood in rows 0, 1 of a block",
        "state": "lengths, KV rows, scales equal; 3 further steps equal",
        "path": PATH_3[1],
        "control": "fired: 1 step at t3_l1_k element 0, found at that key",
    }
    assert [label for label, _ in found.facts][:3] == ["logits", "places", "state"]
    assert [(cost.m, cost.totals) for cost in found.costs] == [(2, (4, 6)), (3, (5, 9))]


def test_isodiff_lines_are_those_of_an_engine_that_knows_no_probe() -> None:
    found = run_small(Isodiff, starts=(3, 5))
    engine, model = Small(), small_model()
    engine.load(model, 20)
    top = [greedy(engine.step(token).logits, 0) for token in prompt_tokens(7, 10, 32)]
    assert found.lines == [
        f"[SPECTOP1] pos={start} col={col} top1={top[start + col]} "
        f"[ISOTOP1] col={col} {top[start + col]} [ISODIFF] col={col} ndiff=0"
        for size in (2, 3)
        for start in (3, 5)
        for col in range(size)
    ]
    # Places are told where a position stood in more than one row.
    assert dict(run_small(Isodiff, starts=(3, 6)).facts).get("places") is None
    assert "places" not in dict(run_small(Isodiff).facts)


def test_isodiff_line_of_a_column_that_differs() -> None:
    lines = run_small(Isodiff, "logits", sizes=(2,)).lines
    assert lines[0].endswith("[ISODIFF] col=0 ndiff=0")
    told = re.search(r"col=1 ndiff=2 first=3 ref=(\w{8}) dut=(\w{8}) ulp=2$", lines[1])
    assert told is not None
    assert int(told[2], 16) == int(told[1], 16) + 2


@pytest.mark.parametrize("kind", BOTH)
def test_isodiff_of_several_seeds(kind: str) -> None:
    found = run_small(Isodiff, kind=kind, seeds=(7, 8), sizes=(2,), starts=(0,))
    assert (found.verdict, len(found.lines)) == (Verdict.SAME, 4)
    first, second = dict(found.facts)["control"].split("; ")
    assert first.startswith("fired: ")
    assert second.startswith("fired: ")
    assert first != second
    parts = {"moe-tiny": "lengths, KV rows, scales", "hybrid-tiny": "lengths, hist, S, KV rows"}
    assert dict(found.facts)["state"] == f"{parts[kind]} equal; 2 further steps equal"


@pytest.mark.parametrize(
    ("faults", "what", "brief", "first", "facts"),
    [
        (
            ("attn",),
            "M = 2, pos 3, col 1; first key t4_l0_attn, born here",
            "M 2, pos 3, col 1, t4_l0_attn, born here",
            "t4_l0_attn",
            text_of(
                ("cause", f"{ATTENTION}, row 1 of 2; {EVERY}"),
                ("columns", "1 of 2 differ; smallest failing M: 2"),
                (
                    "state",
                    "KV rows differ from layer 1 on, position 4; "
                    "scales differ from layer 1 on, position 4; lengths equal",
                ),
                PATH_2,
                RED,
            ),
        ),
        (
            ("attn", "from 3"),
            "M = 3, pos 3, col 1; first key t4_l0_attn, born here",
            "M 3, pos 3, col 1, t4_l0_attn, born here",
            "t4_l0_attn",
            text_of(
                ("cause", f"{ATTENTION}, row 1 of 3; {EVERY}"),
                ("columns", "2 of 3 differ; smallest failing M: 3 (2 equal)"),
                (
                    "state",
                    "KV rows differ from layer 0 on, position 5; "
                    "scales differ from layer 0 on, position 5; lengths equal",
                ),
                PATH_3,
                RED,
            ),
        ),
        (
            ("nan",),
            "M = 2, pos 3, col 1; first key t4_l0_attn, born here",
            "M 2, pos 3, col 1, t4_l0_attn, born here",
            "t4_l0_attn",
            text_of(
                (
                    "cause",
                    f"{ATTENTION}, row 1 of 2; {EVERY}; not finite, as KV rows past the length "
                    "are here: are they read?",
                ),
                ("columns", "1 of 2 differ; smallest failing M: 2"),
                (
                    "state",
                    "KV rows differ from layer 1 on, position 4; "
                    "scales differ from layer 1 on, position 4; lengths equal",
                ),
                PATH_2,
                RED,
            ),
        ),
        (
            ("short",),
            "M = 2, pos 3, col 1; first key t4_l0_nrm, missing in the rows",
            "M 2, pos 3, col 1, t4_l0_nrm, missing in the rows",
            "t4_l0_nrm",
            text_of(
                ("cause", f"{NORM}, row 1 of 2; {EVERY}"),
                ("columns", "1 of 2 differ; smallest failing M: 2"),
                ("state", "lengths, KV rows, scales equal"),
                PATH_2,
                RED,
            ),
        ),
        (
            ("logits",),
            "M = 2, pos 3, col 1; the keys are equal, the logits returned are not",
            "M 2, pos 3, col 1, the keys are equal, the logits returned are not",
            None,
            text_of(
                ("columns", "1 of 2 differ; smallest failing M: 2"),
                ("state", "lengths, KV rows, scales equal"),
                PATH_2,
                RED,
            ),
        ),
        (
            ("stores k",),
            "M = 2, pos 3; state differs, first at l0_k row 4 (position 4)",
            "M 2, pos 3, state differs, first at l0_k row 4 (position 4)",
            None,
            text_of(
                ("columns", "0 of 2 differ; smallest failing M: 2"),
                ("state", "KV rows differ from layer 0 on, position 4; lengths, scales equal"),
                PATH_2,
                RED,
            ),
        ),
        (
            ("hidden",),
            "M = 2, pos 3; a further step differs, first key t5_l0_nrm",
            "M 2, pos 3, a further step differs, first key t5_l0_nrm",
            "t5_l0_nrm",
            text_of(
                ("cause", f"{NORM}, position 5, after the block; {EVERY}"),
                ("columns", "0 of 2 differ; smallest failing M: 2"),
                ("state", "lengths, KV rows, scales equal"),
                PATH_2,
                RED,
            ),
        ),
        *(
            (
                (fault,),
                f"M = 2, pos 3, col 0; the logits of {what} without a tap differ from single "
                "steps with one",
                f"M 2, pos 3, col 0, the logits of {what} without a tap differ from single steps "
                "with one",
                None,
                text_of(("columns", "2 of 2 differ; smallest failing M: 2"), PATH_2, RED),
            )
            for fault, what in (("untapped", "rows"), ("untapped steps", "single steps"))
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_isodiff_red(
    faults: tuple[str, ...], what: str, brief: str, first: str | None, facts: list[tuple[str, str]]
) -> None:
    found = run_small(Isodiff, *faults)
    failing = f"--m {what[4]} --pos 3:3 --seed 7"
    assert said(found) == (Verdict.DIVERGED, what, first, failing, 120)
    assert found.brief == brief
    assert [fact for fact in found.facts if fact[0] not in ("size", "greedy")] == facts
    assert found.costs
    assert found.smallest == int(what[4])


def test_isodiff_searches_every_smaller_size() -> None:
    """Of 3 and up a block fails: asked for 6 alone, 2 is tried and holds, 3 is tried and fails."""
    found = run_small(Isodiff, "attn", "from 3", sizes=(6,))
    assert found.headline == "M = 3, pos 3, col 1; first key t4_l0_attn, born here"
    assert dict(found.facts)["columns"] == "2 of 3 differ; smallest failing M: 3 (2 equal)"
    assert found.failing == "--m 3 --pos 3:3 --seed 7"
    assert found.compared == 6 * 24
    assert dict(found.facts)["path"].startswith("8 calls for one forward of 6 rows")
    tapless = run_small(Isodiff, "untapped", sizes=(4,))
    assert tapless.headline.startswith("M = 2, pos 3, col 0; the logits of rows without a tap")


def test_isodiff_reports_the_smallest_size_then_the_first_place() -> None:
    found = run_small(Isodiff, "attn", sizes=(3, 2), starts=(5, 4))
    assert found.headline == "M = 2, pos 4, col 1; first key t5_l0_attn, born here"
    assert found.failing == "--m 2 --pos 4:4 --seed 7"
    later = run_small(Isodiff, "attn", seeds=(9, 8))
    assert later.failing.endswith("--seed 9")
    assert later.compared == 120


def test_isodiff_unstable_rows_and_steps() -> None:
    found = run_small(Isodiff, "flaky steps")
    what = "2 rows at pos 3 differ between two runs"
    assert (found.verdict, found.brief) == (Verdict.UNSTABLE, what)
    assert found.headline == f"{what}; at first M = 2, pos 3, col 0; first key t3_l0_nrm, born here"
    assert "cause" not in dict(found.facts)


def test_isodiff_looks_again_at_the_smallest_size_that_failed() -> None:
    found = run_small(Isodiff, "flaky steps", sizes=(4,))
    assert found.brief == "2 rows at pos 3 differ between two runs"


def test_isodiff_counts_what_differs_over_all_blocks() -> None:
    def step(*logits: float) -> Step:
        return Step(np.float32(logits), [])

    tally, ref = _Tally(), [step(1, 2, 3), step(4, 5, 6)]
    for other in ([step(0, 0, 3), step(4, 5, 6)], [step(1, 2, 0), step(4, 5, 0)]):
        _publish(Outcome(ref, {}), Outcome(other, {}), 3, tally, 0)
    assert (tally.differing, tally.logits) == (4, 12)
    assert (tally.equal_columns, tally.columns) == (1, 4)
    assert [line.partition("ndiff=")[2] for line in tally.lines] == [
        "2 first=0 ref=3f800000 dut=00000000 ulp=1065353216",
        "0",
        "1 first=2 ref=40400000 dut=00000000 ulp=1077936128",
        "1 first=2 ref=40c00000 dut=00000000 ulp=1086324736",
    ]


def test_isodiff_without_steps_is_not_run() -> None:
    nothing = Outcome([], {})
    assert _wrong(judge(nothing, nothing), []) == ("no steps", None, Verdict.NOT_RUN)


def test_isodiff_what_does_not_come_back() -> None:
    found = run_small(Isodiff, "flaky steps", more=0)
    what = "single steps differ between two runs, first at t3_l0_nrm"
    assert (found.verdict, found.brief) == (Verdict.UNSTABLE, what)
    once = run_small(Isodiff, "attn", "once")
    what = "2 rows at pos 3: what differed did not come back in a second run"
    assert (once.verdict, once.brief) == (Verdict.UNSTABLE, what)
    assert once.headline.startswith(f"{what}; at first M = 2, pos 3, col 1; first key t4_l0_attn")


def test_isodiff_a_difference_comes_before_what_could_not_be_compared() -> None:
    found = run_small(Isodiff, "attn", "from 3", "nan at 5", starts=(4,))
    assert (found.verdict, found.first) == (Verdict.DIVERGED, "t5_l0_attn")
    assert found.headline.startswith("M = 3, pos 4, col 1; first key t5_l0_attn")
    alone = run_small(Isodiff, "nan at 5", starts=(4,), sizes=(3, 2))
    assert (alone.verdict, alone.first, alone.failing) == (
        *(Verdict.NOT_RUN, None),
        "--m 2 --pos 4:4 --seed 7",
    )
    assert "not finite with the same bytes: t5_l0_attn" in alone.headline
    assert "control" not in dict(alone.facts)


def test_isodiff_line_of_logits_without_a_distance() -> None:
    line = run_small(Isodiff, "nan logits", sizes=(2,)).lines[1]
    assert re.search(r"col=1 ndiff=1 first=3 ref=\w{8} dut=7fc00000 ulp=none$", line)


def test_isodiff_nothing_batched() -> None:
    found = run_small(Isodiff, "looped", sizes=(3, 2))
    text = "M = 3, 2: as many calls as single steps: nothing was batched"
    assert said(found) == (Verdict.NOT_RUN, text, None, "", 120)
    assert found.brief == text
    alone = run_small(Isodiff, sizes=(1,))
    text = "M = 1: as many calls as single steps: nothing was batched"
    assert (alone.verdict, alone.headline, alone.brief) == (Verdict.NOT_RUN, text, text)
    assert run_small(Isodiff, sizes=(1, 2)).verdict is Verdict.SAME


def test_isodiff_control_that_does_not_fire() -> None:
    found = run_small(Isodiff, "dead tap")
    text = "did not fire: 1 step at t3_l1_k element 0, found at nothing"
    assert (found.verdict, found.headline) == (Verdict.NOT_RUN, f"the control {text}")
    assert found.brief == found.headline
    assert dict(found.facts)["control"] == text
    level = run_small(Isodiff, lacks=("inject",))
    told = dict(level.facts)["control"]
    assert (level.verdict, told) == (
        Verdict.SAME,
        "fired: dump level: one digit of t3_l1_k, found at that key",
    )


def test_isodiff_room_progress_and_states() -> None:
    found, side = opened(Isodiff, sizes=(3, 2), starts=(3, 5), more=2)
    engine: Any = side.engine
    assert engine.room == 5 + 3 + 2
    singles = [(f"single t{at}", at * (24 if at else 0), 10 * 24 if at else 0) for at in range(10)]
    blocks = [("M 3 pos 3", 0), ("M 3 pos 5", 72), ("M 2 pos 3", 144), ("M 2 pos 5", 192)]
    assert engine.told == [*singles, *((text, done, 240) for text, done in blocks)]
    _, twice = opened(Isodiff, sizes=(2,), seeds=(7, 8))
    assert {told[2] for told in twice.engine.told if told[0].startswith("M")} == {2 * 2 * 24}
    # Garbage up to the room, then the start itself, before everything that is run.
    pairs = list(zip(engine.written[::2], engine.written[1::2], strict=True))
    assert {pair for pair in pairs} == {(10, 3), (10, 5)}
    assert found.compared == 240
